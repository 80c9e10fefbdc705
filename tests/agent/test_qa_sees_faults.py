"""QA notices every GPU fault while it is in: otherwise a node could return to service with it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gameday.agent.qa.checks import judge
from gameday.agent.qa.readings import Pace, read_node
from gameday.agent.task import Proof
from gameday.faults.registry import fault_for, parse_parameters
from gameday.plan.qa import QaFloors
from tests.faults.gpu_model import ModelHost

FLOORS = QaFloors(
    gpus=2,
    gemm_tflops=650,
    memory_bandwidth_gbs=1905,
    pcie_generation=5,
    pcie_width=16,
    nvlinks=18,
    memory_free_mib=4096,
)
SEEN_BY = [
    ({"type": "gpu_burn"}, {"burn-in", "gemm-rate"}),
    ({"type": "gpu_memory", "leave_mib": 256}, {"memory-free", "gemm-rate", "memory-bandwidth"}),
    ({"type": "gpu_memory", "mode": "fragment", "leave_mib": 256}, {"memory-free", "gemm-rate", "memory-bandwidth"}),
    ({"type": "power_cap", "watts": 300}, {"power-limit"}),
    ({"type": "clock_lock", "sm_clock_mhz": 510}, {"sm-clock", "gemm-rate"}),
    ({"type": "persistence_off"}, {"persistence-mode"}),
    ({"type": "ecc_off"}, {"ecc-mode"}),
    ({"type": "gpu_removed"}, {"gpu-count"}),
    ({"type": "numa"}, {"burn-in", "gemm-rate"}),  # an agent's own work keeps the GPU on the model
]


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.agent.qa.readings.LOAD_S", 0.05)


def failed(host: ModelHost) -> set[tuple[str, int | None]]:
    proof = Proof(floors=FLOORS, burn_in_s=300, virtual_burn_in_s=2)
    pace = Pace(host.clock, host.clock.pass_by)
    readings = read_node(host, "20261121-204941-0", None, threading.Event(), proof, pace)
    return {(found.check, found.gpu) for found in judge(readings, FLOORS) if not found.ok}


@pytest.mark.parametrize(("data", "checks"), SEEN_BY, ids=[" ".join(map(str, data.values())) for data, _ in SEEN_BY])
def test_qa_fails_for_its_own_reason_while_the_fault_is_in_and_passes_after(
    data: dict[str, Any], checks: set[str]
) -> None:
    host = ModelHost(gpus=2)
    parameters = parse_parameters(data)
    fault = fault_for(parameters)
    state = fault.inject(parameters, 1, host).undo_state
    found = failed(host)
    assert {check for check, _ in found} >= checks
    assert {gpu for _, gpu in found} <= {None, 1}
    fault.undo(parameters, 1, host, state)
    assert failed(host) == set()
