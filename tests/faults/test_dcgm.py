"""Values in DCGM's cache and its pause: in, read back, held against real samples, out from whatever state was kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gameday.agent.context import Context, Ending
from gameday.agent.inject import inject, undo
from gameday.agent.task import AgentResult, InjectTask, UndoTask
from gameday.errors import HostError
from gameday.faults.base import Fault
from gameday.faults.dcgm_field import FIELDS, DcgmFieldFault, DcgmFieldName, DcgmFieldParameters
from gameday.faults.dcgm_pause import DcgmPauseFault, DcgmPauseParameters
from gameday.faults.registry import parse_parameters
from gameday.host.base import ProgramResult
from gameday.rehearsal.nodes.components import Sandbox, SandboxContainer
from gameday.rehearsal.nodes.dcgm import BY_ID
from tests.faults.gpu_model import ModelHost
from tests.host.fake import FakeHost, result

FIELD, PAUSE = DcgmFieldFault(), DcgmPauseFault()
TEMPERATURE, XID, REMAP = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ROW_REMAP_FAILURE"


def of(field: str, value: float | None = None, **more: object) -> DcgmFieldParameters:
    return DcgmFieldParameters.model_validate({"field": field, "value": value} | more)


@pytest.fixture
def host() -> ModelHost:
    return ModelHost()


def cached(host: ModelHost, field: str, gpu: int = 0) -> float | None:
    return host.machine.cache.latest((0, gpu), FIELDS[field].id)


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_field_of_the_table_goes_in_is_read_back_and_comes_out(host: ModelHost, name: str) -> None:
    bounds = FIELDS[name]
    parameters = of(name, None if bounds.fault is not None else min(bounds.low + 3, bounds.high))
    before = cached(host, name, 2)
    evidence = FIELD.inject(parameters, 2, host)
    assert cached(host, name, 2) == float(parameters.injected)
    assert f"--gpuid 2 -f {bounds.id} -v {parameters.injected}" in evidence.lines[1]
    assert evidence.lines[2].endswith(f"shows {parameters.injected}")
    assert not FIELD.verify_undone(parameters, 2, host, evidence.undo_state)
    FIELD.undo(parameters, 2, host, evidence.undo_state)
    assert FIELD.verify_undone(parameters, 2, host, evidence.undo_state)
    host.clock.pass_by(10)
    if bounds.id in BY_ID and before is not None and bounds.sampled:
        assert cached(host, name, 2) == pytest.approx(before, rel=0.1), "real samples are back"


def sandbox(app: str, *containers: SandboxContainer) -> Sandbox:
    return Sandbox("1a-2b", "gpu-operator", f"{app}-x", {"app": app}, burstable=False, containers=containers)


PROXY = SandboxContainer("rbac-proxy", ("kube-rbac-proxy",))
ALONE = SandboxContainer("exporter", ("dcgm-exporter", "-f", "/etc/counters.csv"), (("DCGM_EXPORTER_LISTEN", ":9400"),))


@pytest.mark.parametrize(("fault", "parameters"), [(FIELD, of(TEMPERATURE)), (PAUSE, DcgmPauseParameters())])
def test_an_exporter_with_an_engine_of_its_own_is_refused_before_anything_is_changed(
    host: ModelHost, fault: Fault[Any], parameters: Any
) -> None:
    host.machine.components.sandboxes = lambda: [sandbox("nvidia-dcgm-exporter", PROXY, ALONE)]
    with pytest.raises(HostError, match=r"dcgm-exporter-x runs a DCGM host engine of its own.*dcgm\.enabled"):
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
    assert FIELD.prior(of(TEMPERATURE), 0, host)


def test_a_node_without_crictl_has_its_exporter_as_a_service(host: ModelHost) -> None:
    run = host.run
    host.run = lambda argv, s: result(argv, 127) if argv[0] == "crictl" else run(argv, s)  # type: ignore[method-assign]
    assert FIELD.prior(of(TEMPERATURE), 0, host)


def test_dcgmi_is_run_in_the_host_engines_pod_where_the_host_has_none(host: ModelHost) -> None:
    host.machine.components.sandboxes = lambda: [sandbox("nvidia-dcgm", SandboxContainer("nvidia-dcgm-ctr"))]
    run = host.run
    host.run = lambda argv, s: result(argv, 127) if argv[0] == "dcgmi" else run(argv, s)  # type: ignore[method-assign]
    state = FIELD.inject(of(TEMPERATURE), 0, host).undo_state
    assert cached(host, TEMPERATURE) == 95
    assert ("crictl", "exec", "nvidia-dcgm-ctr-1a2b1a2b", "dcgmi", "test", "--inject") in {
        argv[:6] for argv in host.ran
    }
    FIELD.undo(of(TEMPERATURE), 0, host, state)
    assert FIELD.verify_undone(of(TEMPERATURE), 0, host, state)


def test_only_the_gpu_that_is_meant_changes_and_nothing_that_nvml_tells(host: ModelHost) -> None:
    seen = [sample.model_dump() for sample in host.gpus()]
    FIELD.inject(of(REMAP, gpu=1), 0, host)
    assert [cached(host, REMAP, gpu) for gpu in range(4)] == [0, 1, 0, 0]
    assert [sample.row_remap_failure for sample in host.gpus()] == [sample["row_remap_failure"] for sample in seen]


def test_a_real_sample_takes_the_place_of_a_value_that_nobody_holds(host: ModelHost) -> None:
    parameters = of(TEMPERATURE)
    evidence = FIELD.inject(parameters, 0, host)
    host.clock.pass_by(3.1)
    assert cached(host, TEMPERATURE) != 95
    assert "not ours: left as it is" in FIELD.undo(parameters, 0, host, evidence.undo_state).lines[0]
    assert FIELD.verify_undone(parameters, 0, host, evidence.undo_state)


class Held(threading.Event):
    """Ends a hold after some turns, each of which lets time pass and looks at the cache."""

    def __init__(self, turns: int, turn: Callable[[], None]) -> None:
        super().__init__()
        self.turns, self.turn = turns, turn

    def wait(self, timeout: float | None = None) -> bool:
        if not self.turns or timeout is None:
            return True
        self.turns -= 1
        self.turn()
        return False


def test_a_held_value_is_the_newest_at_every_moment(host: ModelHost) -> None:
    parameters, seen = of(TEMPERATURE), []
    FIELD.inject(parameters, 0, host)

    def second() -> None:
        for _ in range(4):
            host.clock.pass_by(0.25)
            seen.append(cached(host, TEMPERATURE))

    assert FIELD.hold(parameters, 0, host, Held(12, second)) == ("injected 12 times more while held",)
    assert set(seen) == {95}


def test_an_xid_stays_without_being_injected_again_which_would_be_another_xid(host: ModelHost) -> None:
    parameters = of(XID, 95)
    FIELD.inject(parameters, 0, host)
    injections = [argv for argv in host.ran if "--inject" in argv]
    FIELD.hold(parameters, 0, host, Held(5, lambda: None))
    host.clock.pass_by(60)
    assert cached(host, XID) == 95
    assert [argv for argv in host.ran if "--inject" in argv] == injections


def test_a_hold_that_can_no_longer_inject_ends_the_fault(host: ModelHost) -> None:
    parameters = of(TEMPERATURE)
    FIELD.inject(parameters, 0, host)
    host.machine.set_unit("nvidia-dcgm", active=False)
    with pytest.raises(HostError, match="is nvidia-dcgm running"):
        FIELD.hold(parameters, 0, host, Held(5, lambda: None))


def test_an_undo_that_knows_nothing_leaves_no_value_until_the_next_sample(host: ModelHost) -> None:
    for name, value in ((REMAP, 1), (XID, 48), ("DCGM_FI_DEV_POWER_USAGE", 900)):
        parameters = of(name, value)
        FIELD.inject(parameters, 3, host)
        assert "no value" in FIELD.undo(parameters, 3, host, {}).lines[0]
        assert FIELD.verify_undone(parameters, 3, host, {})
        assert not host.machine.cache.shown(BY_ID[FIELDS[name].id])[0, 3], "an exporter skips a blank"
    host.clock.pass_by(10)
    assert cached(host, REMAP, 3) == 0


def test_undo_is_idempotent_and_knows_the_gpu_from_its_state(host: ModelHost) -> None:
    parameters = of(REMAP)
    evidence = FIELD.inject(parameters, 1, host)
    for _ in range(2):
        FIELD.undo(parameters, 0, host, evidence.undo_state)
        assert FIELD.verify_undone(parameters, 0, host, evidence.undo_state)
    assert cached(host, REMAP, 1) == 0


def test_a_value_that_is_there_already_is_refused(host: ModelHost) -> None:
    with pytest.raises(HostError, match=r"ROW_REMAP_FAILURE of GPU 0 is 0 already: nothing would change"):
        FIELD.prior(of(REMAP, 0), 0, host)


def test_a_gpu_that_is_not_there_changes_nothing(host: ModelHost) -> None:
    with pytest.raises(HostError, match="no GPU 9 on this node"):
        FIELD.prior(of(REMAP, gpu=9), 0, host)
    assert host.ran == []


def test_a_host_engine_that_is_down_is_named(host: ModelHost) -> None:
    host.machine.set_unit("nvidia-dcgm", active=False)
    for prior in (lambda: FIELD.prior(of(REMAP), 0, host), lambda: PAUSE.prior(DcgmPauseParameters(), 0, host)):
        with pytest.raises(HostError, match=r"cannot reach the node's host engine: is nvidia-dcgm running\?|connect"):
            prior()


def answering(answers: dict[str, ProgramResult]) -> FakeHost:
    """A host whose dcgmi answers by the first argument that is a key, or well and nothing; there is no crictl."""
    host = FakeHost()
    answers |= {"crictl": result(["crictl"], 127)}

    def answer(argv: Sequence[str]) -> ProgramResult:
        return next((answers[word] for word in argv if word in answers), result(argv))

    host.programs = answer
    return host


def test_a_node_without_dcgmi_is_told_what_to_install() -> None:
    missing = result(["dcgmi"], 127, stderr="nsenter: failed to execute dcgmi: No such file or directory\n")
    with pytest.raises(HostError, match=r"no dcgmi on this node .*datacenter-gpu-manager"):
        FIELD.prior(of(REMAP), 0, answering({"dcgmi": missing}))


def test_success_that_reading_back_does_not_show_is_an_error() -> None:
    said = result(["dcgmi"], stdout="Successfully injected field info.\n")
    rows = result(["dcgmi"], stdout="#Entity   RRF\nID\nGPU 0           0\n")
    host = answering({"--inject": said, "dmon": rows})
    with pytest.raises(HostError, match="3 times its dmon shows 0"):
        FIELD.inject(of(REMAP), 0, host)
    assert len([argv for argv in host.ran if "--inject" in argv]) == 3


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            result(["dcgmi"], 255, stdout="Error: Unable to inject info. Return: Bad parameter passed to function\n"),
            r"exit 255: Error: Unable to inject info\. Return: Bad parameter",
        ),
        (result(["dcgmi"]), "exit 0: no word"),
    ],
)
def test_a_refused_injection_is_told_in_dcgmis_words(answer: ProgramResult, says: str) -> None:
    rows = result(["dcgmi"], stdout="GPU 0           0\n")
    with pytest.raises(HostError, match=says):
        FIELD.inject(of(REMAP), 0, answering({"--inject": answer, "dmon": rows}))


def test_a_dmon_without_the_gpus_row_is_an_error() -> None:
    rows = result(["dcgmi"], stdout="#Entity   RRF\nID\nGPU 1           0\n")
    with pytest.raises(HostError, match="no row for GPU 0"):
        FIELD.prior(of(REMAP), 0, answering({"dmon": rows}))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"field": "DCGM_FI_DEV_NONSENSE"}, "Input should be"),
        ({"field": TEMPERATURE, "value": 201}, r"takes -100 to 200 \(°C\), not 201"),
        ({"field": TEMPERATURE, "value": "0x5F"}, "no number: write it in decimal"),
        ({"field": TEMPERATURE, "value": True}, "no number"),
        ({"field": TEMPERATURE, "value": 95.5}, "takes whole numbers"),
        ({"field": TEMPERATURE, "value": float("nan")}, "finite"),
        ({"field": "DCGM_FI_DEV_POWER_USAGE", "value": 700.1234}, "at most 3 decimals"),
        ({"field": "DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER_FLOAT", "value": 1e-5}, r"takes 0\.001 to 1"),
        ({"field": XID}, r"needs a value, .*1 to 999 \(Xid\)"),
        ({"field": XID, "value": 0}, "takes 1 to 999"),
        ({"field": REMAP, "value": 1, "gpu": 64}, "less than or equal to 63"),
    ],
)
def test_what_cannot_be_injected_is_refused_before_any_host_sees_it(data: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        parse_parameters({"type": "dcgm_field"} | data)


def test_what_a_plan_writes_the_agent_reads() -> None:
    parameters = of(TEMPERATURE, 95)
    assert parse_parameters(json.loads(parameters.model_dump_json())) == parameters
    assert list(DcgmFieldName) == list(FIELDS)


def test_who_approves_a_run_is_told_who_acts_on_the_value() -> None:
    assert FIELD.warnings(of("DCGM_FI_DEV_THERMAL_VIOLATION")) == (
        "DCGM_FI_DEV_THERMAL_VIOLATION: NVSentinel cordons the node, with no remediation of its own",
    )
    assert FIELD.warnings(of("DCGM_FI_DEV_FB_FREE", 1)) == ()


def test_a_pause_freezes_what_dcgm_tells_and_a_resume_lets_it_go_on(host: ModelHost) -> None:
    parameters = DcgmPauseParameters()
    evidence = PAUSE.inject(parameters, 0, host)
    assert evidence.lines[1] == "dcgmi test --pause: Successfully paused metrics monitoring"
    energy, temperature = cached(host, "DCGM_FI_DEV_POWER_USAGE"), cached(host, TEMPERATURE)
    host.fleet.set_burst_load((0, 0), 1.0)
    host.clock.pass_by(60)
    assert (cached(host, "DCGM_FI_DEV_POWER_USAGE"), cached(host, TEMPERATURE)) == (energy, temperature)
    assert host.gpus()[0].temperature_c > temperature + 10, "NVML tells the truth meanwhile"
    assert not PAUSE.verify_undone(parameters, 0, host, {})
    for _ in range(2):
        PAUSE.undo(parameters, 0, host, {})
        assert PAUSE.verify_undone(parameters, 0, host, evidence.undo_state)
    assert cached(host, TEMPERATURE) > temperature + 10


def test_somebody_elses_pause_is_neither_taken_over_nor_resumed(host: ModelHost) -> None:
    host.machine.cache.pause(0)
    with pytest.raises(HostError, match="paused already, by somebody who will want to resume it"):
        PAUSE.prior(DcgmPauseParameters(), 0, host)
    assert not host.machine.cache.collecting[0]


def test_a_pause_that_somebody_ends_is_told(host: ModelHost) -> None:
    PAUSE.inject(DcgmPauseParameters(), 0, host)
    with pytest.raises(HostError, match="DCGM collects again"):
        PAUSE.hold(DcgmPauseParameters(), 0, host, Held(3, lambda: host.machine.cache.restart(0)))


def test_a_pause_that_changed_nothing_is_an_error(host: ModelHost) -> None:
    host.ignore.add("--pause")
    with pytest.raises(HostError, match=r"said 'All done\.', and DCGM's core module is not paused"):
        PAUSE.inject(DcgmPauseParameters(), 0, host)


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
