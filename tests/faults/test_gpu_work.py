"""Burn, memory and the far NUMA node: what the work proves, what ends it, and that nothing of it stays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from gameday.errors import HostError
from gameday.faults.base import Fault
from gameday.faults.gpu import GpuParameters
from gameday.faults.gpu_burn import GpuBurnFault, GpuBurnParameters
from gameday.faults.gpu_memory import GpuMemoryFault, GpuMemoryParameters
from gameday.faults.numa import NumaFault, NumaParameters
from tests.faults.gpu_model import ModelHost

BURN, MEMORY, NUMA = GpuBurnFault(), GpuMemoryFault(), NumaFault()
ALL = pytest.mark.parametrize(
    ("fault", "parameters"),
    [(BURN, GpuBurnParameters()), (MEMORY, GpuMemoryParameters()), (NUMA, NumaParameters())],
    ids=["burn", "memory", "numa"],
)


class Hold(threading.Event):
    """Each second that a fault waits passes at once, on the model's clock; `each` happens in it."""

    def __init__(self, host: ModelHost, seconds: int, each: Callable[[int], None] = lambda _: None) -> None:
        super().__init__()
        self._host, self._seconds, self._each, self._waited = host, seconds, each, 0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout == 1.0, "the temperature is watched each second"
        self._waited += 1
        self._host.clock.pass_by(1.0)
        self._each(self._waited)
        return self._waited > self._seconds


@pytest.fixture
def host() -> ModelHost:
    return ModelHost()


@ALL
def test_it_runs_on_its_gpu_and_nothing_of_it_stays(
    fault: Fault[Any], parameters: GpuParameters, host: ModelHost
) -> None:
    evidence = fault.inject(parameters, 2, host)
    assert list(host.machine.works) == [2]
    assert not fault.verify_undone(parameters, 2, host, {})
    fault.hold(parameters, 2, host, Hold(host, 3))
    fault.undo(parameters, 2, host, evidence.undo_state)
    assert fault.verify_undone(parameters, 2, host, evidence.undo_state)
    assert host.machine.gpu_processes[2] == {}
    assert host.machine.samples()[2].memory_used_bytes == 4 << 20


@ALL
def test_a_gpu_that_is_not_there_is_refused(fault: Fault[Any], parameters: GpuParameters, host: ModelHost) -> None:
    with pytest.raises(HostError, match="no GPU 9"):
        fault.prior(parameters, 9, host)


@ALL
def test_work_that_ends_by_itself_is_an_error(fault: Fault[Any], parameters: GpuParameters, host: ModelHost) -> None:
    fault.inject(parameters, 2, host)
    with pytest.raises(HostError, match="over: none was begun"):
        fault.hold(parameters, 2, host, Hold(host, 9, lambda second: host.end_work(2) and None))


@ALL
def test_undo_without_anything_going_on_is_clean(fault: Fault[Any], parameters: GpuParameters, host: ModelHost) -> None:
    fault.undo(parameters, 2, host, {})
    assert fault.verify_undone(parameters, 2, host, {})


def test_a_burn_shows_in_power_and_heat_and_counts_what_it_checked(host: ModelHost) -> None:
    BURN.inject(GpuBurnParameters(), 2, host)
    (line,) = BURN.hold(GpuBurnParameters(), 2, host, Hold(host, 60))
    sample = host.gpus()[2]
    assert sample.power_w and sample.power_w > 600
    assert line.startswith(f"held: peak {sample.temperature_c:g} °C, best 7")
    (ended,) = BURN.undo(GpuBurnParameters(), 2, host, {}).lines
    assert "checked, no element wrong" in ended


def test_half_the_load_is_half_the_power(host: ModelHost) -> None:
    parameters = GpuBurnParameters(utilization_pct=50)
    BURN.inject(parameters, 2, host)
    BURN.hold(parameters, 2, host, Hold(host, 5))
    assert host.gpus()[2].utilization_pct == 50


def test_wrong_elements_are_a_finding(host: ModelHost) -> None:
    host.fleet.wrong_results[0, 2] = 3
    assert "3 ELEMENTS WRONG: silent data corruption" in BURN.inject(GpuBurnParameters(), 2, host).lines[1]


def test_the_ceiling_ends_the_load_and_is_told(host: ModelHost) -> None:
    parameters = GpuBurnParameters(ceiling_c=60)
    BURN.inject(parameters, 2, host)
    seconds: list[int] = []
    lines = BURN.hold(parameters, 2, host, Hold(host, 200, seconds.append))
    assert host.machine.works == {}
    assert lines[-1].startswith("the ceiling of 60 °C ended the load")
    assert len(seconds) < 60
    assert host.gpus()[2].temperature_c == pytest.approx(60, abs=2)


def test_heat_is_held_at_its_goal(host: ModelHost) -> None:
    parameters = GpuBurnParameters(heat_to_c=55, ceiling_c=70)
    BURN.inject(parameters, 2, host)
    seen: list[float] = []
    lines = BURN.hold(parameters, 2, host, Hold(host, 90, lambda _: seen.append(float(host.fleet.temperature[0, 2]))))
    assert all(abs(degrees - 55) < 3 for degrees in seen[60:])
    assert lines[1].startswith("55 °C reached after")


def test_heat_that_is_never_reached_is_told(host: ModelHost) -> None:
    parameters = GpuBurnParameters(heat_to_c=80, utilization_pct=10)
    BURN.inject(parameters, 2, host)
    assert BURN.hold(parameters, 2, host, Hold(host, 30))[1] == "80 °C never reached"


def test_a_gpu_that_is_too_hot_already_is_not_heated(host: ModelHost) -> None:
    with pytest.raises(HostError, match=r"GPU 2 is at .* °C, and ceiling_c is 40"):
        host.fleet.temperature[0, 2] = 45
        BURN.prior(GpuBurnParameters(ceiling_c=40), 2, host)


def test_without_a_temperature_there_is_no_load(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    BURN.inject(GpuBurnParameters(), 2, host)
    blind = [sample.model_copy(update={"temperature_c": None}) for sample in host.gpus()]
    monkeypatch.setattr(host, "gpus", lambda: blind)
    with pytest.raises(HostError, match="no load without it"):
        BURN.hold(GpuBurnParameters(), 2, host, Hold(host, 5))
    with pytest.raises(HostError, match="no load without it"):
        BURN.prior(GpuBurnParameters(), 2, host)


def test_a_gpu_lost_under_load_is_an_error(host: ModelHost) -> None:
    BURN.inject(GpuBurnParameters(), 2, host)
    with pytest.raises(HostError, match="cudaErrorDevicesUnavailable"):
        BURN.hold(GpuBurnParameters(), 2, host, Hold(host, 9, lambda _: host.machine.lose_gpu(2)))
    BURN.undo(GpuBurnParameters(), 2, host, {})
    assert BURN.verify_undone(GpuBurnParameters(), 2, host, {})


@pytest.mark.parametrize(("heat", "ceiling"), [(85, 85), (90, 80)])
def test_a_goal_at_the_ceiling_is_refused(heat: int, ceiling: int) -> None:
    with pytest.raises(ValidationError, match="must lie below ceiling_c"):
        GpuBurnParameters(heat_to_c=heat, ceiling_c=ceiling)


@pytest.mark.parametrize("parameters", [{"ceiling_c": 93}, {"heat_to_c": 95}, {"utilization_pct": 0}])
def test_heat_has_bounds(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        GpuBurnParameters.model_validate(parameters)


def test_exhausted_memory_leaves_what_was_asked_and_shows_in_nvml(host: ModelHost) -> None:
    evidence = MEMORY.inject(GpuMemoryParameters(leave_mib=256), 2, host)
    sample = host.gpus()[2]
    assert sample.memory_total_bytes and sample.memory_used_bytes
    assert host.fleet.memory_free_mib((0, 2)) == 256
    assert "256 MiB free; the largest block left is 256 MiB" in evidence.lines[1]


def test_fragmented_memory_is_held_but_not_in_use(host: ModelHost) -> None:
    evidence = MEMORY.inject(GpuMemoryParameters(mode="fragment", leave_mib=64, block_mib=128), 2, host)
    held, unused = (int(evidence.lines[1].split()[word]) for word in (1, 3))
    assert held > 80_000
    assert unused == pytest.approx(held / 2, abs=128)
    assert "the largest block left is 128 MiB" in evidence.lines[1]


def test_memory_that_nvml_does_not_show_as_taken_is_no_injection(
    host: ModelHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = host.gpus()
    monkeypatch.setattr(host, "gpus", lambda: before)
    with pytest.raises(HostError, match="but NVML shows 4 MiB"):
        MEMORY.inject(GpuMemoryParameters(), 2, host)


def test_a_gpu_without_free_memory_is_refused(host: ModelHost) -> None:
    with pytest.raises(HostError, match="nothing to take"):
        MEMORY.inject(GpuMemoryParameters(leave_mib=900_000), 2, host)


def test_the_far_node_is_slower_and_the_ratio_is_told(host: ModelHost) -> None:
    evidence = NUMA.inject(NumaParameters(), 3, host)
    assert evidence.lines[0] == "GPU 3 is at NUMA node 1, CPUs 56-111,168-223; NVML agrees"
    assert evidence.lines[2].endswith("from node 0 (distance 21), CPUs 0-55,112-167")
    assert evidence.lines[3] == "far/near = 0.62"


def test_nvml_that_disagrees_is_told(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [sample.model_copy(update={"cpu_affinity": "0-7"}) for sample in host.gpus()]
    monkeypatch.setattr(host, "gpus", lambda: samples)
    assert NUMA.inject(NumaParameters(), 3, host).lines[0].endswith("NVML says 0-7")


@pytest.mark.parametrize(
    ("path", "content", "told"),
    [
        ("/sys/bus/pci/devices/0000:52:00.0/numa_node", "-1\n", "the firmware does not tell"),
        ("/sys/devices/system/node/online", "1\n", "nowhere is far"),
        ("/sys/devices/system/node/node0/cpulist", "\n", "nowhere is far"),
        ("/sys/devices/system/node/node1/distance", "nonsense\n", "cannot make sense of"),
    ],
)
def test_a_machine_without_a_far_side_is_refused(
    host: ModelHost, monkeypatch: pytest.MonkeyPatch, path: str, content: str, told: str
) -> None:
    read = host.read_file
    alone = "10\n" if path.endswith("online") else None

    def changed(asked: str) -> str:
        if alone and asked.endswith("distance"):
            return alone
        return content if asked == path else read(asked)

    monkeypatch.setattr(host, "read_file", changed)
    with pytest.raises(HostError, match=told):
        NUMA.prior(NumaParameters(), 2, host)


def test_a_far_node_that_is_the_near_one_is_refused(host: ModelHost) -> None:
    with pytest.raises(HostError, match=r"node 1 is not one with CPUs that is far from GPU 3; those are \[0\]"):
        NUMA.prior(NumaParameters(far_node=1), 3, host)
