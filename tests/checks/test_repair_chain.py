"""The verdicts on a cluster's own repair: held, broken at the hop at which it stopped, unknown after it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from gameday.checks.outcome import fold_outcome
from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import (
    AllocatableSeen,
    ConditionSeen,
    NodeReplaced,
    NodeReturned,
    NodeSeen,
    QaChecked,
    QaLeftOut,
    Remediated,
    RepairAwaited,
    RepairChainEnded,
    RepairHopSeen,
    RunEnded,
    SignalUnwatched,
    StepEnded,
    WorkloadSeen,
)
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.expectations import Expectations
from gameday.plan.models import Plan, Recovery
from gameday.values.results import Cleanliness, Hop, RepairHop, RepairKind, Step
from tests.report.run_builder import FAULT_AT, NODE, PLAN, TAINT, Timed, at, history_of, passing, snapshot

SUCCESSOR = "gpu-node-77"
HOPS: dict[str, Any] = {
    "quarantined": {"within": "5s"},
    "work_moved": {"within": "5s"},
    "repair_begun": {"within": "5s", "signs": [{"event": {"reason": "NodeRepairBegun"}}]},
    "repaired": {"within": "5s", "kinds": ["reboot", "replacement"]},
    "ready": {"within": "5s"},
    "validated": {"within": "5s", "signs": [{"event": {"reason": "NodeValidated"}}]},
    "returned": {"within": "5s"},
}
IDS = [f"repair-{hop.value.replace(' ', '-')}" for hop in RepairHop]


def plan(**recover: Any) -> Plan:
    recovery = Recovery.model_validate({"by": "cluster", "hops": HOPS} | recover)
    return PLAN.model_copy(update={"recover": recovery})


def hop(which: RepairHop, took_s: float = 1.0, **changes: Any) -> Timed:
    """A hop that took so long, of a chain in which all others took a second."""
    place = list(RepairHop).index(which)
    at_s = FAULT_AT + place + took_s
    since = list(RepairHop)[place - 1] if place else Hop.WRITTEN
    event = RepairHopSeen(
        hop=which, node=NODE, at=at(at_s), by="foreign", source="watch of the node", took_s=took_s, since=since,
        repair=RepairKind.REBOOT if which is RepairHop.REPAIRED else None,
    )  # fmt: skip
    return Timed(21.1 + place, event.model_copy(update=changes))


def ended(
    stopped_at: RepairHop | None = None,
    *,
    in_service: bool = True,
    left: tuple[str, ...] = (),
    missed: tuple[RepairHop, ...] = (),
) -> Timed:
    why = "not within 5s" if stopped_at else ""
    event = RepairChainEnded(node=NODE, stopped_at=stopped_at, why=why, left=left, missed=missed, in_service=in_service)
    return Timed(30.0, event)


def hands_off(*more: Timed, hops: Iterable[RepairHop] = RepairHop, qa: bool = True) -> History:
    """The passing run, in which the cluster took these hops and the game-day repaired nothing."""
    gone: tuple[type, ...] = (NodeReturned, Remediated) if qa else (NodeReturned, Remediated, QaChecked)
    kept = [
        timed
        for timed in passing()
        if not isinstance(timed.event, gone) and (qa or getattr(timed.event, "purpose", "") != "return")
    ]
    awaited = Timed(8.0, RepairAwaited(node=NODE))
    return history_of([*kept, awaited, *map(hop, hops), *more])


def verdicts(history: History, **recover: Any) -> dict[str, Verdict]:
    return {one.check: one for one in run_checks(plan(**recover), history, Frames())}


def outcome(history: History, **recover: Any) -> tuple[str, int, str]:
    result = fold_outcome(history, list(run_checks(plan(**recover), history, Frames())))
    return result.outcome, result.exit_code, result.why


def test_a_cluster_that_takes_every_hop_in_time_holds_each_and_passes() -> None:
    history = hands_off(ended())
    found = verdicts(history)
    assert {check: found[check].status for check in IDS} == dict.fromkeys(IDS, Status.HELD)
    assert found["repair-repaired"].measured == "1.0 s after ‘repair begun’; reboot, by foreign"
    assert found["repair-quarantined"].bound == "≤ 5 s"
    record = next(record for record, seen in history.with_times(RepairHopSeen) if seen.hop is RepairHop.READY)
    assert record.seq in found["repair-ready"].evidence
    assert "remediation" not in found
    assert "workload-canary" not in found
    assert outcome(history)[:2] == ("passed", 0)


def test_plans_in_which_the_game_day_repairs_have_no_such_verdict() -> None:
    found = {one.check for one in run_checks(PLAN, history_of(passing()), Frames())}
    assert found.isdisjoint(IDS)


@pytest.mark.parametrize("stopped_at", list(RepairHop))
def test_the_hop_that_did_not_come_is_broken_and_the_later_ones_are_not_reached(stopped_at: RepairHop) -> None:
    place = list(RepairHop).index(stopped_at)
    left = (f"taint {TAINT}",)
    end = ended(stopped_at, in_service=False, left=left)
    out = Timed(40.0, QaLeftOut(node=NODE, why=f"the cluster's repair stopped at the hop '{stopped_at}'"))
    history = hands_off(end, out, hops=list(RepairHop)[:place], qa=False)
    found = verdicts(history)
    assert [found[check].status for check in IDS[:place]] == [Status.HELD] * place
    broken = found[IDS[place]]
    assert (broken.status, broken.why) == (
        Status.BROKEN,
        f"the cluster stopped here: not within 5s; the cluster left taint {TAINT}",
    )
    later = [found[check] for check in IDS[place + 1 :]]
    assert {(one.status, one.why) for one in later} <= {
        (Status.UNKNOWN, f"not reached: the cluster stopped at the hop ‘{stopped_at}’")
    }
    assert found["qa"].why.startswith("left out: the cluster's repair stopped")
    assert (found["workload-return"].status, found["workload-return"].why) == (Status.UNKNOWN, found["qa"].why)
    assert found["alert-resolves"].why.startswith("not reached: the cluster stopped at the hop")
    said, code, why = outcome(history)
    assert (said, code) == ("failed", 1)
    assert f"(hop ‘{stopped_at}’)" in why


def test_work_that_stays_is_broken_and_the_chain_stops_where_the_repair_does_not_begin() -> None:
    end = ended(RepairHop.REPAIR_BEGUN, in_service=False, missed=(RepairHop.WORK_MOVED,))
    history = hands_off(end, hops=[RepairHop.QUARANTINED], qa=False)
    found = verdicts(history)
    assert (found["repair-work-moved"].status, found["repair-work-moved"].why) == (
        Status.BROKEN,
        "not within 5s; the cluster stopped at the hop ‘repair begun’",
    )
    assert (found["repair-repair-begun"].status, found["repair-repair-begun"].why) == (
        Status.BROKEN,
        "the cluster stopped here: not within 5s",
    )
    assert found["repair-repaired"].status is Status.UNKNOWN
    assert outcome(history)[:2] == ("failed", 1)


def test_what_the_cluster_leaves_is_named_and_no_dirt_of_ours() -> None:
    left = snapshot(tainted=True, cordoned=True)
    end = ended(RepairHop.REPAIR_BEGUN, in_service=False, left=(f"taint {TAINT}", "cordon"))
    history = hands_off(end, Timed(46.5, NodeSeen(phase="after", snapshot=left)), hops=list(RepairHop)[:2], qa=False)
    found = verdicts(history)
    assert (found["node-as-before"].status, found["node-as-before"].why) == (
        Status.UNKNOWN,
        f"the cluster stopped at the hop 'repair begun'; it left taint {TAINT}, cordon",
    )
    said, code, _ = outcome(history)
    assert (said, code) == ("failed", 1)


def test_a_hop_that_comes_too_late_is_broken() -> None:
    history = hands_off(Timed(24.5, hop(RepairHop.REPAIRED, 7.5).event), ended())
    late = verdicts(history)["repair-repaired"]
    assert (late.status, late.why) == (Status.BROKEN, "2.5 s too late after ‘repair begun’")
    assert late.seconds == pytest.approx(7.5)


def test_signs_that_nobody_could_watch_leave_the_hop_unknown() -> None:
    blind = Timed(8.1, SignalUnwatched(node=NODE, signal="events", why="403: forbidden"))
    history = hands_off(blind, ended(RepairHop.REPAIR_BEGUN), hops=list(RepairHop)[:2])
    found = verdicts(history)["repair-repair-begun"]
    assert (found.status, found.why) == (Status.UNKNOWN, "its signs could not be watched: 403: forbidden")


def test_a_run_that_was_cut_off_proves_nothing_about_the_hops_to_come() -> None:
    history = hands_off(hops=[RepairHop.QUARANTINED])
    cut = [
        record
        for record in history.records
        if not isinstance(record.event, RunEnded)
        and not (isinstance(record.event, StepEnded) and record.event.step in (Step.RECOVER, Step.QA_NODE))
    ]
    found = verdicts(History(tuple(cut)))
    assert found["repair-quarantined"].status is Status.HELD
    assert found["repair-returned"].status is Status.UNKNOWN
    assert found["repair-returned"].why == "the run was cut off during 'recover', before the hop ‘returned’"


def test_the_actor_that_showed_later_is_the_one_that_counts() -> None:
    unknown = hop(RepairHop.REPAIRED, by="unknown")
    history = hands_off(unknown, Timed(29.0, hop(RepairHop.REPAIRED, by="late").event), ended())
    assert verdicts(history)["repair-repaired"].measured.endswith("by late")


def test_a_node_that_must_stay_out_of_service_and_does_holds_and_needs_no_qa() -> None:
    history = hands_off(ended(in_service=False), hops=list(RepairHop)[:-1], qa=False)
    found = verdicts(history, node_ends="out-of-service")
    kept = found["repair-returned"]
    assert (kept.status, kept.bound) == (Status.HELD, "for 5.0 s")
    assert kept.expectation == f"The cluster keeps {NODE} out of service (hop ‘returned’)"
    assert found.keys().isdisjoint({"qa", "workload-return", "node-as-before", "alert-resolves"})
    said, code, why = outcome(history, node_ends="out-of-service")
    assert (said, code) == ("passed", 0)
    assert why.endswith(f"expectations held, and the cluster keeps {NODE} out of service.")


def test_a_node_that_must_stay_out_of_service_and_comes_back_is_broken() -> None:
    history = hands_off(ended(RepairHop.RETURNED), qa=False)
    back = verdicts(history, node_ends="out-of-service")["repair-returned"]
    assert (back.status, back.why) == (Status.BROKEN, "foreign gave it back 1.0 s after ‘validated’")


def test_a_node_that_must_stay_out_of_service_and_never_went_out_is_broken() -> None:
    history = hands_off(ended(RepairHop.RETURNED), hops=list(RepairHop)[:-1], qa=False)
    kept = verdicts(history, node_ends="out-of-service")["repair-returned"]
    assert (kept.status, kept.why) == (Status.BROKEN, "not within 5s")


def test_the_successor_of_a_replaced_node_is_the_one_that_qa_proves() -> None:
    pool = {"karpenter.sh/nodepool": "a"}
    replaced = Timed(24.0, NodeReplaced(node=NODE, successor=SUCCESSOR, pool=pool, boot_id="b2", at=at(24.0)))
    moved = []
    for timed in passing():
        event = timed.event
        if isinstance(event, QaChecked) or (isinstance(event, WorkloadSeen) and event.purpose == "return"):
            moved.append(Timed(timed.seconds, event.model_copy(update={"node": SUCCESSOR})))
    history = hands_off(replaced, *moved, ended(), qa=False)
    found = verdicts(history)
    assert (found["qa"].status, found["qa"].node) == (Status.HELD, SUCCESSOR)
    assert found["workload-return"].status is Status.HELD
    assert "node-as-before" not in found
    at_seq = next(record.seq for record, _ in history.with_times(NodeReplaced))
    assert at_seq in found["repair-repaired"].evidence
    assert history.last(RunEnded) == RunEnded(cleanliness=Cleanliness.CLEAN)
    assert outcome(history)[:2] == ("passed", 0)


def test_a_condition_and_gpus_that_went_with_a_replaced_node_are_over() -> None:
    expect: dict[str, Any] = {
        "conditions": [{"type": "GpuMemWatch", "status": True, "within": "10s", "clears_within": "60s"}],
        "allocatable_falls": {"within": "10s", "returns_within": "60s"},
    }
    bad = ConditionSeen(node=NODE, condition="GpuMemWatch", status="True", reason="Bad", at=at(FAULT_AT + 1))
    fewer = AllocatableSeen(node=NODE, gpus=7, before=8, at=at(FAULT_AT + 1))
    replaced = NodeReplaced(node=NODE, successor=SUCCESSOR, pool={}, boot_id="b2", at=at(27.5))
    history = hands_off(Timed(10.5, bad), Timed(10.6, fewer), Timed(27.5, replaced), ended())
    wanted = plan().model_copy(update={"expect": Expectations.model_validate(expect)})
    found = {one.check: one.status for one in run_checks(wanted, history, Frames())}
    assert (found["condition-clears"], found["allocatable-returns"]) == (Status.HELD, Status.HELD)
