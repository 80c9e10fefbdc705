"""The behaviour that both faults on DCGM share: which dcgmi, which engine, and the agent around them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.context import Context, Ending
from gameday.agent.inject import Injection, inject, undo
from gameday.agent.task import AgentResult, InjectTask, UndoTask
from gameday.errors import HostBusyError, HostError
from gameday.faults.base import Fault
from gameday.faults.dcgm_field import FIELDS, DcgmFieldFault, DcgmFieldName
from gameday.faults.dcgm_pause import DcgmPauseFault, DcgmPauseParameters
from gameday.faults.registry import parse_parameters
from gameday.host.base import ProgramResult
from gameday_rehearsal.nodes.components import Sandbox, SandboxContainer
from tests.faults.dcgm_model import REMAP, TEMPERATURE, XID, answering, cached, of
from tests.faults.gpu_model import ModelHost
from tests.host.fake import result

FIELD, PAUSE = DcgmFieldFault(), DcgmPauseFault()


def sandbox(app: str, *containers: SandboxContainer) -> Sandbox:
    return Sandbox("1a-2b", "gpu-operator", f"{app}-x", {"app": app}, burstable=False, containers=containers)


CAP = {"type": "power_cap", "watts": 300}

PROXY = SandboxContainer("rbac-proxy", ("kube-rbac-proxy",))

ALONE = SandboxContainer("exporter", ("dcgm-exporter", "-f", "/etc/counters.csv"), (("DCGM_EXPORTER_LISTEN", ":9400"),))


@pytest.mark.parametrize(("fault", "parameters"), [(FIELD, of(TEMPERATURE)), (PAUSE, DcgmPauseParameters())])
def test_an_exporter_with_an_engine_of_its_own_is_refused_before_anything_is_changed(
    host: ModelHost, fault: Fault[Any], parameters: Any
) -> None:
    host.machine.components.sandboxes = lambda: [sandbox("nvidia-dcgm-exporter", PROXY, ALONE)]
    with pytest.raises(HostError, match=r"dcgm-exporter-x\) runs a DCGM host engine of its own.*dcgm\.enabled"):
        fault.inject(parameters, 0, host)
    assert not any("dcgmi" in argv for argv in host.ran)


@pytest.mark.parametrize(
    "exporter",
    [
        replace(ALONE, environment=(("DCGM_REMOTE_HOSTENGINE_INFO", "nvidia-dcgm:5555"),)),
        replace(ALONE, argv=("dcgm-exporter", "-r", "localhost:5555")),
        replace(ALONE, argv=("dcgm-exporter", "--remote-hostengine-info=localhost:5555")),
    ],
)
def test_an_exporter_that_asks_the_nodes_engine_is_fine(host: ModelHost, exporter: SandboxContainer) -> None:
    host.machine.components.sandboxes = lambda: [sandbox("nvidia-dcgm-exporter", PROXY, exporter)]
    assert FIELD.prior_state(of(TEMPERATURE), 0, host)


def test_a_node_without_crictl_has_its_exporter_as_a_service(host: ModelHost) -> None:
    run = host.run
    host.run = lambda argv, *more: result(argv, 127) if argv[0] == "crictl" else run(argv, *more)  # type: ignore[method-assign]
    assert FIELD.prior_state(of(TEMPERATURE), 0, host)


def test_dcgmi_is_run_in_the_host_engines_pod_where_the_host_has_none(host: ModelHost) -> None:
    host.machine.components.sandboxes = lambda: [sandbox("nvidia-dcgm", SandboxContainer("nvidia-dcgm-ctr"))]
    run = host.run
    host.run = lambda argv, *more: result(argv, 127) if argv[0] == "dcgmi" else run(argv, *more)  # type: ignore[method-assign]
    state = FIELD.inject(of(TEMPERATURE), 0, host).undo_state
    assert cached(host, TEMPERATURE) == 95
    assert ("crictl", "exec", "nvidia-dcgm-ctr-1a2b1a2b", "dcgmi", "test", "--inject") in {
        argv[:6] for argv in host.ran
    }
    FIELD.undo(of(TEMPERATURE), 0, host, state)
    assert FIELD.verify_undone(of(TEMPERATURE), 0, host, state)


def test_a_host_engine_that_is_down_is_named(host: ModelHost) -> None:
    host.machine.set_unit("nvidia-dcgm", active=False)
    for prior in (
        lambda: FIELD.prior_state(of(REMAP), 0, host),
        lambda: PAUSE.prior_state(DcgmPauseParameters(), 0, host),
    ):
        with pytest.raises(HostError, match=r"cannot reach the node's host engine: is nvidia-dcgm running\?|connect"):
            prior()


def test_the_message_for_a_node_without_dcgmi_names_the_package() -> None:
    missing = result(["dcgmi"], 127, stderr="nsenter: failed to execute dcgmi: No such file or directory\n")
    with pytest.raises(HostError, match=r"no dcgmi on this node .*datacenter-gpu-manager"):
        FIELD.prior_state(of(REMAP), 0, answering({"dcgmi": missing}))


def test_what_a_plan_writes_the_agent_reads() -> None:
    parameters = of(TEMPERATURE, 95)
    assert parse_parameters(json.loads(parameters.model_dump_json())) == parameters
    assert list(DcgmFieldName) == list(FIELDS)


def through_the_agent(host: ModelHost, folder: Path, fault: dict[str, object]) -> AgentResult:
    context = Context(host, Ending(), folder, folder / "log")
    task = InjectTask(run_id="r", node="a", gpu=0, fault=fault, hold_s=0.05)
    return inject(task, context)


def test_the_agent_injects_holds_and_leaves_clean(host: ModelHost, tmp_path: Path) -> None:
    outcome = through_the_agent(host, tmp_path, {"type": "dcgm_field", "field": REMAP, "gpu": 1})
    assert (outcome.ok, outcome.cleanliness, outcome.ended_by) == (True, "clean", "hold")
    assert outcome.undo_state == {"gpu": "1", "before": "0"}
    assert cached(host, REMAP, 1) == 0


def test_what_the_host_refuses_was_never_in(host: ModelHost, tmp_path: Path) -> None:
    host.machine.set_unit("nvidia-dcgm", active=False)
    outcome = through_the_agent(host, tmp_path, {"type": "dcgm_pause"})
    assert (outcome.ok, outcome.cleanliness) == (False, "clean")
    assert "cannot reach" in outcome.error or "connect" in outcome.error


def test_a_second_agent_takes_out_what_a_killed_one_left(host: ModelHost, tmp_path: Path) -> None:
    parameters = of(XID, 79)
    FIELD.inject(parameters, 0, host)
    task = UndoTask(run_id="r", node="a", gpu=0, fault=parameters.model_dump(mode="json"))
    outcome = undo(task, Context(host, Ending(), tmp_path, tmp_path / "log"))
    assert (outcome.ok, outcome.cleanliness) == (True, "clean")
    assert cached(host, XID) != 79


class Interrupted(ModelHost):
    """A node on which somebody runs `dcgmi diag`, which pauses the collection, or its host engine stands still.

    `reads` is how many more reads of a value fail for it.
    """

    reads = 0
    frozen = False

    def run(self, argv: Sequence[str], timeout_s: float, ended: threading.Event | None = None) -> ProgramResult:
        self.reads -= "dmon" in argv
        busy = self.reads >= 0
        if busy and self.frozen:
            raise HostBusyError(f"{' '.join(argv)!r} did not end within {timeout_s:g} s and was killed")
        (self.machine.cache.pause if busy else self.machine.cache.resume)(0)
        return super().run(argv, timeout_s, ended)


@pytest.mark.parametrize(("frozen", "said"), [(False, "collection is paused"), (True, "did not end within 15 s")])
def test_an_undo_tries_again_until_a_paused_or_frozen_engine_answers(
    monkeypatch: pytest.MonkeyPatch, frozen: bool, said: str
) -> None:
    monkeypatch.setattr("gameday.agent.inject._BUSY_PAUSE_S", 0.0)
    host = Interrupted()
    injection = Injection({"type": "dcgm_field", "field": REMAP}, 1, host)
    state = injection.fault.inject(injection.parameters, 1, host).undo_state
    host.reads, host.frozen = 5, frozen
    outcome = injection.take_out(state)
    assert (outcome.ok, outcome.cleanliness, outcome.attempts) == (True, "clean", 6)
    assert len([line for line in outcome.evidence if line.startswith("busy: ") and said in line]) == 1
    assert cached(host, REMAP, 1) == 0


def test_an_undo_gives_up_at_its_deadline_and_says_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.agent.inject._BUSY_FOR_S", 0.0)
    host = Interrupted()
    injection = Injection(
        {"type": "compound", "parts": [{"type": "dcgm_field", "field": XID, "value": 48}, CAP]}, 1, host
    )
    state = injection.fault.inject(injection.parameters, 1, host).undo_state
    host.reads = 99
    outcome = injection.take_out(state)
    assert (outcome.ok, outcome.cleanliness) == (False, "unknown")
    assert "perhaps still in: busy: part 1, dcgm_field: DCGM's collection is paused" in outcome.error
    assert host.gpus()[1].power_limit_w == 700, "the other part is out"
    host.reads = 0
    assert injection.take_out(state).cleanliness == "clean", "as the second agent does"
