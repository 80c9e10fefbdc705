"""No check of QA passes by construction: each one fails on the rehearsal's model for a weakness of the node."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest

from gameday.agent.qa.checks import GPU_CHECKS, NODE_CHECKS, judge
from gameday.agent.qa.readings import Pace, read_node
from gameday.agent.task import Proof
from gameday.plan.qa import QaFloors
from gameday_rehearsal.nodes.gpus import BLOCKED_AIR
from gameday_rehearsal.nodes.in_process import ModelHost

WEAK = 1
FLOORS = QaFloors(memory_free_mib=4096)
PutIn = Callable[[ModelHost], None]


def of_gpu(array: str, value: float) -> PutIn:
    """Set the hardware state of the weak GPU."""

    def put_in(host: ModelHost) -> None:
        getattr(host.fleet, array)[0, WEAK] = value

    return put_in


def logs_an_xid(host: ModelHost) -> None:
    host.machine.record_xid(WEAK, 95, "pid='<unknown>', name=<unknown>, Uncontained ECC error")


def is_hot(host: ModelHost) -> None:
    host.fleet.temperature[0, WEAK] = host.fleet.sink[0, WEAK] = 84.0


WEAKNESSES: dict[str, tuple[PutIn, float]] = {
    "gpu-count": (of_gpu("removed", True), 1),
    "all-reduce-rate": (of_gpu("nvlinks", 12), 1),
    "all-reduce-sums": (of_gpu("wrong_results", 1), 1),
    "dcgm-diag": (of_gpu("remap_pending", True), 1),
    "kernel-log": (logs_an_xid, 1),
    "gpu-answers": (of_gpu("lost", True), 1),
    "ecc-double-bit": (of_gpu("dbe_volatile", 1), 1),
    "row-remap-pending": (of_gpu("remap_pending", True), 1),
    "row-remap-failure": (of_gpu("remap_failure", True), 1),
    "remapped-rows": (of_gpu("remapped_uncorrectable", 513), 1),
    "ecc-mode": (of_gpu("ecc", False), 1),
    "persistence-mode": (of_gpu("persistence", False), 1),
    "power-limit": (of_gpu("power_limit", 300), 1),
    "memory-free": (of_gpu("held_mib", 80_000), 1),
    "nvlinks-active": (of_gpu("nvlinks", 12), 1),
    "nvlink-speed": (of_gpu("nvlink_mbps", 25_000), 1),
    "pcie-width": (of_gpu("pcie_width", 8), 1),
    "pcie-generation": (of_gpu("pcie_generation", 4), 1),
    "hw-slowdown": (of_gpu("thermal_resistance", BLOCKED_AIR), 60),
    "sm-clock": (of_gpu("clock_ceiling", 900), 1),
    "temperature": (of_gpu("thermal_resistance", BLOCKED_AIR), 60),
    "temperature-spread": (of_gpu("thermal_resistance", BLOCKED_AIR), 60),
    "gemm-rate": (of_gpu("compute_share", 0.6), 1),
    "gemm-spread": (of_gpu("compute_share", 0.85), 1),
    "memory-bandwidth": (of_gpu("memory_share", 0.5), 1),
    "memory-spread": (of_gpu("memory_share", 0.85), 1),
    "link-bandwidth": (of_gpu("pcie_width", 8), 1),
    "link-spread": (of_gpu("link_share", 0.85), 1),
    "gemm-results": (of_gpu("wrong_every", 1), 1),
    "memory-pattern": (of_gpu("bad_word_at", 4096), 1),
    "gemm-agreement": (of_gpu("wrong_results", 1), 1),
}
"""By check: a weakness that it must find, and the seconds of burn-in in which it must."""


@pytest.fixture(autouse=True)
def _short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.agent.qa.readings.LOAD_S", 0.01)


Results = dict[str, set[tuple[int | None, bool | None]]]
"""By check: whether it was passed, of each GPU; of None where it is of the node."""


def results(put_in: PutIn, seconds: float, ends_after: float = math.inf) -> Results:
    """Return what each check says of a node of four GPUs with this weakness.

    Args:
        put_in: Makes the weakness.
        seconds: Duration of the burn-in, in the model's time.
        ends_after: The seconds of burn-in after which QA is ended.
    """
    host, ended = ModelHost(4), threading.Event()
    put_in(host)
    began = host.clock()

    def wait(pause: float) -> None:
        host.clock.pass_by(pause)
        if host.clock() - began >= ends_after:
            ended.set()

    proof = Proof(floors=FLOORS, burn_in_s=300, virtual_burn_in_s=seconds, dcgm_diag=3)
    readings = read_node(host, "20261121-204941-0", 4, ended, proof, Pace(host.clock, wait))
    found: Results = {}
    for one in judge(readings, FLOORS):
        found.setdefault(one.check, set()).add((one.gpu, one.ok))
    return found


@pytest.mark.parametrize("check", [one.name for one in NODE_CHECKS if one.name != "burn-in"])
def test_a_check_of_the_node_fails_for_a_weakness_of_one_gpu(check: str) -> None:
    put_in, seconds = WEAKNESSES[check]
    assert results(put_in, seconds)[check] == {(None, False)}


@pytest.mark.parametrize("check", [one.name for one in GPU_CHECKS])
def test_a_check_of_a_gpu_fails_on_the_weak_one_and_on_no_other(check: str) -> None:
    """The spreads, too: each is taken from the median of the others, and one GPU of four does not move that."""
    put_in, seconds = WEAKNESSES[check]
    assert results(put_in, seconds)[check] == {(gpu, gpu != WEAK) for gpu in range(4)}


def test_a_burn_in_that_did_not_run_is_unknown_because_it_proves_neither() -> None:
    assert results(is_hot, 1)["burn-in"] == {(None, None)}


def test_a_burn_in_that_was_cut_short_fails() -> None:
    assert results(lambda host: None, 60, ends_after=30)["burn-in"] == {(None, False)}


def test_a_node_without_a_weakness_passes_them_all() -> None:
    found = results(lambda host: None, 60)
    assert set(found) >= {*WEAKNESSES, "burn-in"}
    assert all(ok is True for seen in found.values() for _, ok in seen), found
