"""The undo at every instant: a sample of all schedules for every change, and all of them night after night."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gameday.ledger.entries import UndoResult
from gameday.plan.catalogue import shipped_plans
from gameday.values.results import Cleanliness
from tests.support.memory_folder import memory_folder
from tests.undo_schedules.aftermaths import AFTERMATHS, after_deadline, after_kill
from tests.undo_schedules.disturbances import after_disturbance
from tests.undo_schedules.instants import instants, plans, requests
from tests.undo_schedules.schedules import play_all

SAMPLED = 84
"""Schedules of each of the plans below; together 2,000."""
# Of each way in and out: kernel log and reboot, GPU settings, DCGM, programs, loads, nodes that go down, interfaces,
# several targets, hands-off, nothing at all.
KINDS = (
    "clock-lock",
    "dcgm-exporter-stopped",
    "dcgm-pause",
    "dcgm-xid-95",
    "device-plugin-frozen",
    "ecc-off",
    "exporter-flaps",
    "fabric-manager-stopped",
    "gpu-burn",
    "gpu-fell-off-the-bus",
    "gpu-memory-full",
    "gpu-removed",
    "hands-off-double-bit-ecc",
    "hands-off-gpu-fell-off-the-bus",
    "kubelet-stopped",
    "nccl-ib-disabled",
    "net-interface-down-ib0",
    "net-netem-ib0",
    "node-reboot",
    "nothing-happens",
    "numa-far-node",
    "power-cap",
    "sxid-20034-link-fault",
    "xid-48-double-bit-ecc",
)


@pytest.fixture(scope="module")
def reports() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


@pytest.mark.parametrize("plan", KINDS)
def test_nothing_is_left_after_a_sample_of_a_plans_schedules(plan: str, reports: Path) -> None:
    tally = play_all(plan, reports, SAMPLED)
    assert tally.wrong == {}
    assert tally.schedules >= SAMPLED


@pytest.mark.slow
@pytest.mark.parametrize("plan", plans())
def test_nothing_is_left_after_any_schedule_of_a_plan(plan: str, reports: Path) -> None:
    assert play_all(plan, reports).wrong == {}


def test_the_shipped_plans_come_to_their_fault_here(reports: Path) -> None:
    """Nothing would be left of runs that are all refused."""
    refused = [plan for plan in KINDS if not any("FaultInjected" in one.what for one in instants(plan, reports))]
    assert refused == []
    assert set(KINDS) <= set(shipped_plans())


def test_a_reaper_that_undoes_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch, reports: Path) -> None:
    (first, *_) = AFTERMATHS
    (fault_is_in, *_) = [
        one for one in instants("clock-lock", reports) if one.what == "after FaultInjected is in the history"
    ]
    monkeypatch.setattr("tests.undo_schedules.aftermaths.reap", lambda kubernetes: None)
    assert after_kill("clock-lock", fault_is_in, first) != []


def test_an_injector_without_its_deadline_is_found_out(monkeypatch: pytest.MonkeyPatch, reports: Path) -> None:
    (fault_is_in, *_) = [
        one for one in instants("clock-lock", reports) if one.what == "after FaultInjected is in the history"
    ]
    assert after_deadline("clock-lock", fault_is_in) == []
    monkeypatch.setattr("tests.support.scripted.pods.Pods.stop", lambda self, uid, ended_by, reason: None)
    assert [one.partition(" of ")[0] for one in after_deadline("clock-lock", fault_is_in)] == ["fault"]


def test_a_run_that_undoes_nothing_and_says_clean_is_found_out(monkeypatch: pytest.MonkeyPatch, reports: Path) -> None:
    assert after_disturbance("clock-lock", "the wall clock jumps an hour ahead", 0, reports) == []
    nothing_done = UndoResult(Cleanliness.CLEAN, ())
    monkeypatch.setattr("gameday.run.run_ledger.undo_entry", lambda *question, **options: nothing_done)
    wrong = after_disturbance("clock-lock", "the wall clock jumps an hour ahead", 0, reports)
    assert any(one.startswith("the run says clean: pods/") for one in wrong)


@pytest.mark.parametrize("disturbance", ["an answer is lost", "a request is carried out twice"])
def test_a_run_knows_its_own_lease_and_ledger_although_nobody_said_that_they_were_made(
    disturbance: str, reports: Path
) -> None:
    asked = requests("clock-lock", reports)
    made = [
        nth for nth, what in enumerate(asked) if what.startswith("POST") and what.endswith(("/leases", "/configmaps"))
    ]
    assert len(made) == 3, "the cluster's lease, the node's, and the ledger"
    assert [after_disturbance("clock-lock", disturbance, nth, reports) for nth in made] == [[], [], []]
