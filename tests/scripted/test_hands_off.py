"""Game-days that keep their hands off: a loop of the cluster repairs the node, or stops at a hop."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.history.events import FaultUndone, IntentRecorded, NodeReturned, RepairChainEnded, RepairHopSeen
from gameday.values.results import Cleanliness, RepairHop
from tests.support.plans import HOPS, STATE
from tests.support.scripted.game_day import Played, play
from tests.support.scripted.plans import QUICK, changed, loaded
from tests.support.scripted.script import NodeChange

TAINT = "trainy.konduktor.ai/faulty"
PLAN = changed(changed(QUICK, "recover", {"by": "cluster", "hops": HOPS}), "expect.workloads", {"running_pods": "any"})
PLAN = changed(
    changed(PLAN, "fault.hold", "60s"), "expect.alerts", [QUICK["expect"]["alerts"][0] | {"resolves_within": "2m"}]
)
REPAIR = (
    NodeChange.label(STATE, "repairing", after_s=5.0),
    NodeChange.condition("Ready", "Unknown", "NodeStatusUnknown", after_s=10.0),
    NodeChange({"status": {"nodeInfo": {"bootID": "boot-2"}}}, after_s=30.0, is_status=True),
    NodeChange.condition("Ready", "True", "KubeletReady", after_s=30.0),
    NodeChange.label(STATE, "validated", after_s=40.0),
    NodeChange({"spec": {"taints": None}, "metadata": {"labels": {STATE: None}}}, after_s=45.0),
)
BY = "foreign-repairer"


def repaired(reports: Path, signs: tuple[NodeChange, ...] = REPAIR) -> Played:
    """Play a game-day on a cluster with a loop that goes through these signs."""
    changes = tuple(replace(one, by=BY) for one in signs)
    return play(loaded(PLAN), lambda script: replace(script, changes=changes), reports=reports)


def test_a_cluster_that_repairs_its_node_is_timed_hop_by_hop(reports: Path) -> None:
    played = repaired(reports)
    assert (played.outcome, played.not_held, played.cluster.left()) == (RunOutcome.PASSED, [], [])
    hops = {seen.hop: seen for seen in played.history.of(RepairHopSeen)}
    assert list(hops) == [hop for hop in RepairHop if hop is not RepairHop.WORK_MOVED]
    assert hops[RepairHop.REPAIR_BEGUN].by == hops[RepairHop.VALIDATED].by == BY
    quarantined = hops[RepairHop.QUARANTINED].at
    since = {hop: (seen.at - quarantined) // timedelta(seconds=1) for hop, seen in hops.items()}
    assert since == {
        RepairHop.QUARANTINED: 0,
        RepairHop.REPAIR_BEGUN: 4,
        RepairHop.REPAIRED: 29,
        RepairHop.READY: 29,
        RepairHop.VALIDATED: 39,
        RepairHop.RETURNED: 44,
    }
    assert played.history.of(NodeReturned) == []
    assert {intent.undo for intent in played.history.of(IntentRecorded)} == {"delete-pod", "take-out-fault"}
    out = next(record.at for record, one in played.history.with_times(FaultUndone) if one.intent == "inject")
    assert hops[RepairHop.REPAIR_BEGUN].at < out < hops[RepairHop.REPAIRED].at


def late(number: int, by_s: float) -> tuple[NodeChange, ...]:
    """Return a loop that is late by so much from one of its signs on."""
    return tuple(
        replace(one, after_s=one.after_s + by_s) if place >= number else one for place, one in enumerate(REPAIR)
    )


# By how much a loop may be late from this sign on.
SPARE = [(0, 5.2, "begun"), (2, 35.0, "repaired"), (3, 30.0, "ready"), (4, 20.0, "validated"), (5, 25.0, "returned")]


@pytest.mark.parametrize(("sign", "spare_s", "hop"), SPARE, ids=[hop for *_, hop in SPARE])
def test_each_hop_has_a_bound_of_its_own(sign: int, spare_s: float, hop: str, reports: Path) -> None:
    assert repaired(reports, late(sign, spare_s - 0.001)).not_held == []
    (broken,) = repaired(reports, late(sign, spare_s + 0.001)).not_held
    assert broken.startswith(("repair-repair-begun" if hop == "begun" else f"repair-{hop}") + ": broken")


def test_a_cluster_that_does_not_repair_fails_at_that_hop_and_its_taint_is_not_ours(reports: Path) -> None:
    played = repaired(reports, ())
    assert (played.outcome, played.result.cleanliness) == (RunOutcome.FAILED, Cleanliness.CLEAN)
    assert "(hop ‘repair begun’)" in played.result.why
    (ended,) = played.history.of(RepairChainEnded)
    assert ended.stopped_at is RepairHop.REPAIR_BEGUN
    assert [key for key, *_ in played.cluster.taints("gpu-node-1")] == [TAINT]
    assert played.cluster.left() == ["gpu-node-1 out of service"]


def test_a_shipped_plan_fails_without_a_repairer_where_the_repair_does_not_begin(reports: Path) -> None:
    played = play("hands-off-gpu-fell-off-the-bus", reports=reports)
    assert (played.outcome, played.status("repair-repair-begun")) == (RunOutcome.FAILED, Status.BROKEN)
    (ended,) = played.history.of(RepairChainEnded)
    assert ended.stopped_at is RepairHop.REPAIR_BEGUN
