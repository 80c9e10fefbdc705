"""Which DCGM engines run beside the one that dcgmi asks, and what is said of what cannot be seen."""

from __future__ import annotations

import json

import pytest

from gameday.errors import HostError
from gameday.faults.dcgm_engines import look_at_engines, refuse_blind_readers
from gameday.faults.dcgm_field import DcgmFieldFault
from gameday.faults.dcgm_pause import DcgmPauseFault, DcgmPauseParameters
from gameday.host.base import DcgmEngine, DcgmEngines
from tests.faults.dcgm_model import TEMPERATURE, of
from tests.faults.gpu_model import ModelHost
from tests.faults.test_dcgm import ALONE, sandbox
from tests.host.fake import FakeHost, result

NODES = DcgmEngine(pid=11, command="/usr/bin/nv-hostengine -n", embedded=False)
NVSENTINEL = DcgmEngine(pid=12, command="python3 /usr/bin/gpu_health_monitor --verbose", pod="uid-2", embedded=True)
STRANGER = DcgmEngine(pid=13, command="job-statistics", embedded=True)
BLIND = ("processes outside this PID namespace: the pod lacks hostPID",)


def node_with(*engines: DcgmEngine, unseen: tuple[str, ...] = ()) -> FakeHost:
    host = FakeHost()
    host.engines = DcgmEngines(engines=engines, unseen=unseen)
    host.programs = lambda argv: result(argv, 127, stderr="nsenter: failed to execute crictl")
    return host


@pytest.mark.parametrize(
    "command",
    [
        "python3 /usr/bin/gpu_health_monitor --verbose",
        "/usr/bin/dcgm-exporter -f /etc/counters.csv",
        "/opt/bin/eks-node-monitoring-agent",
        "/opt/healthagent/.venv/bin/python -m healthagent",
    ],
)
def test_a_reader_with_an_engine_in_its_own_process_is_refused_by_name_and_remedy(command: str) -> None:
    engine = NVSENTINEL.model_copy(update={"command": command})
    with pytest.raises(
        HostError, match=r"process 12 \(.*, pod uid-2\) runs a DCGM host engine of its own: .+ sees noth"
    ):
        refuse_blind_readers(node_with(NODES, engine))


def test_a_reader_is_known_by_its_pods_name_where_its_command_says_nothing() -> None:
    host = node_with(NODES, NVSENTINEL.model_copy(update={"command": "python3 -m monitor"}))
    pod = {"id": "s", "metadata": {"namespace": "nvsentinel", "name": "gpu-health-monitor-x", "uid": "uid-2"}}
    host.programs = lambda argv: result(argv, stdout=json.dumps({"items": [pod]}))
    assert "pod nvsentinel/gpu-health-monitor-x) runs" in look_at_engines(host).blind[0]


def test_an_engine_of_another_program_is_a_warning() -> None:
    host = node_with(NODES, STRANGER)
    refuse_blind_readers(host)
    assert look_at_engines(host).lines == ("not reached: readers of the engine in process 13 (job-statistics)",)


def test_of_several_host_engines_dcgmi_asks_one() -> None:
    second = NODES.model_copy(update={"pid": 21, "pod": "uid-9"})
    (line,) = look_at_engines(node_with(NODES, second)).lines
    assert line.startswith("not reached: readers of all but one of 2 host engines (process 11 (")
    assert "pod uid-9" in line


def test_the_nodes_own_engine_alone_is_nothing_to_say() -> None:
    assert look_at_engines(node_with(NODES)).lines == ()


def test_what_cannot_be_seen_is_said_and_the_exporters_configuration_is_asked_instead(host: ModelHost) -> None:
    host.dcgm_engines = lambda: DcgmEngines(unseen=BLIND)  # type: ignore[method-assign]
    host.machine.components.sandboxes = lambda: [sandbox("nvidia-dcgm-exporter", ALONE)]
    with pytest.raises(HostError, match=r"dcgm-exporter-x is configured to run a DCGM host engine of its own"):
        refuse_blind_readers(host)
    host.machine.components.sandboxes = list
    assert look_at_engines(host).lines == (f"cannot see every DCGM engine: {BLIND[0]}",)


def test_without_crictl_and_without_sight_both_are_said() -> None:
    first, second = look_at_engines(node_with(unseen=BLIND)).lines
    assert BLIND[0] in first
    assert "how a dcgm-exporter is configured: no crictl on this node" in second


def test_the_evidence_of_a_fault_says_what_it_does_not_reach(host: ModelHost) -> None:
    found = host.machine.dcgm_engines()
    host.dcgm_engines = lambda: DcgmEngines(engines=(*found.engines, STRANGER), unseen=BLIND)  # type: ignore[method-assign]
    field = DcgmFieldFault().inject(of(TEMPERATURE), 0, host).lines
    pause = DcgmPauseFault().inject(DcgmPauseParameters(), 0, host).lines
    for lines in (field, pause):
        assert "not reached: readers of the engine in process 13 (job-statistics)" in lines
        assert f"cannot see every DCGM engine: {BLIND[0]}" in lines
