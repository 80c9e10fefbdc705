"""Conditions, labels, Events, cordons and GPU counts: held, broken, and unknown where nothing was proved."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import (
    AllocatableSeen,
    ConditionSeen,
    CordonSeen,
    Event,
    KubernetesEventSeen,
    LabelSeen,
    NodeSeen,
    Problem,
    SignalUnwatched,
    StepStarted,
)
from gameday.history.frames import Frames
from gameday.plan.expectations import Expectations
from gameday.plan.models import Plan
from gameday.values.results import Step
from tests.report.run_builder import FAULT_AT, NODE, PLAN, Timed, at, history_of, passing

EXPECT: dict[str, Any] = {
    "cordoned": {"within": "10s"},
    "conditions": [{"type": "GpuMemWatch", "status": True, "reason": "Bad", "within": "10s", "clears_within": "60s"}],
    "labels": [{"key": "ours/state", "value": "bad", "within": "10s"}],
    "events": [{"reason": "OursXid79", "type": "Warning", "within": "10s"}],
    "allocatable_falls": {"within": "10s", "returns_within": "60s"},
}
IDS = (
    "cordoned",
    "condition-set",
    "condition-clears",
    "label-set",
    "event-written",
    "allocatable-falls",
    "allocatable-returns",
)


def plan(**changes: Any) -> Plan:
    return PLAN.model_copy(update={"expect": Expectations.model_validate(EXPECT | changes)})


def condition(status: str | None, seconds: float, reason: str = "Bad") -> Event:
    return ConditionSeen(node=NODE, condition="GpuMemWatch", status=status, reason=reason, at=at(seconds))


def label(value: str | None, seconds: float) -> Event:
    return LabelSeen(node=NODE, label="ours/state", value=value, at=at(seconds))


def kube_event(seconds: float, type: str = "Warning") -> Event:
    return KubernetesEventSeen(node=NODE, reason="OursXid79", type=type, source="ours", message="m", at=at(seconds))


def gpus(now: int, before: int, seconds: float) -> Event:
    return AllocatableSeen(node=NODE, gpus=now, before=before, at=at(seconds))


def run_with(*seen: Event) -> list[Timed]:
    """The passing run, and what a detector did in it, each written down when it happened."""
    return [*passing(), *(Timed((event.at - at(0)).total_seconds(), event) for event in seen)]  # type: ignore[union-attr]


SEEN = FAULT_AT + 2
GONE = 300.0
EVERYTHING = (
    CordonSeen(node=NODE, cordoned=True, at=at(SEEN)),
    condition("True", SEEN),
    label("bad", SEEN),
    kube_event(SEEN),
    gpus(7, 8, SEEN),
    condition("False", GONE, "Good"),
    gpus(8, 7, GONE),
)


def judge(timed: list[Timed], check: str, of: Plan | None = None) -> Verdict:
    found = [v for v in run_checks(of or plan(), history_of(timed), Frames()) if v.check == check]
    assert len(found) == 1, f"{check}: {found}"
    return found[0]


@pytest.mark.parametrize("check", [name for name in IDS if not name.endswith(("clears", "returns"))])
def test_what_comes_in_time_holds_with_the_time_it_took(check: str) -> None:
    verdict = judge(run_with(*EVERYTHING), check)
    assert (verdict.status, verdict.measured) == (Status.HELD, "2.0 s"), verdict


@pytest.mark.parametrize("check", ["condition-clears", "allocatable-returns"])
def test_what_goes_after_remediation_holds(check: str) -> None:
    assert judge(run_with(*EVERYTHING), check, plan(**_long())).status is Status.HELD


@pytest.mark.parametrize("check", ["condition-clears", "allocatable-returns"])
def test_what_goes_too_late_is_broken(check: str) -> None:
    late = (*EVERYTHING[:5], condition("False", 3000.0, "Good"), gpus(8, 7, 3000.0))
    assert judge(run_with(*late), check).status is Status.BROKEN


@pytest.mark.parametrize("check", IDS)
def test_what_never_comes_is_broken_or_says_why_its_end_was_not_reached(check: str) -> None:
    verdict = judge(run_with(), check)
    ends = check in ("condition-clears", "allocatable-returns")
    assert verdict.status is (Status.UNKNOWN if ends else Status.BROKEN)
    assert ("was not seen coming" in verdict.why) is ends


@pytest.mark.parametrize("check", [name for name in IDS if not name.endswith(("clears", "returns"))])
def test_what_could_not_be_observed_is_unknown(check: str) -> None:
    blind = Timed(FAULT_AT + 1, Problem(step=Step.VERIFY_TAINT, what="the watch broke"))
    verdict = judge([*run_with(), blind], check)
    assert (verdict.status, "the watch broke" in verdict.why) == (Status.UNKNOWN, True)


def test_events_that_nobody_could_watch_are_unknown_with_the_servers_reason() -> None:
    why = "watch events in namespace default: 403"
    unwatched = SignalUnwatched(node=NODE, signal="events", why=why)
    verdict = judge([*run_with(), Timed(0.5, unwatched)], "event-written")
    assert (verdict.status, verdict.why) == (Status.UNKNOWN, why)


def test_what_was_there_before_the_fault_proves_nothing() -> None:
    early = FAULT_AT - 5
    seen = run_with(condition("True", early), label("bad", early), kube_event(early))
    assert {judge(seen, check).status for check in ("condition-set", "label-set", "event-written")} == {Status.BROKEN}


@pytest.mark.parametrize(
    ("check", "seen", "instead"),
    [
        ("condition-set", condition("True", SEEN, "Other"), "reason Other instead"),
        ("label-set", label("good", SEEN), "ours/state=good instead"),
        ("event-written", kube_event(SEEN, "Normal"), "one of type Normal instead"),
    ],
)
def test_another_word_than_the_expected_is_broken_and_named(check: str, seen: Event, instead: str) -> None:
    verdict = judge(run_with(seen), check)
    assert (verdict.status, verdict.why) == (Status.BROKEN, instead)


def test_a_condition_that_comes_back_after_it_cleared_has_not_cleared() -> None:
    flaps = (*EVERYTHING, condition("True", GONE + 10))
    assert judge(run_with(*flaps), "condition-clears").status is Status.BROKEN


def test_the_cordon_that_recovery_sets_itself_is_not_the_detectors() -> None:
    recovery = next(one for one in passing() if isinstance(one.event, StepStarted) and one.event.step is Step.RECOVER)
    ours = CordonSeen(node=NODE, cordoned=True, at=at(recovery.seconds + 1))
    generous = plan(cordoned={"within": "1h"})
    assert judge(run_with(ours), "cordoned", generous).status is Status.BROKEN


def test_a_condition_that_stays_by_plan_is_not_asked_to_clear() -> None:
    stays = plan(conditions=[EXPECT["conditions"][0] | {"clears_within": None}])
    assert not [v for v in run_checks(stays, history_of(run_with(*EVERYTHING)), Frames()) if v.check == IDS[2]]


def test_gpus_that_were_never_offered_cannot_fall() -> None:
    none = _with_snapshots(before={"allocatable_gpus": None})
    assert judge(none, "allocatable-falls").status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("after", "what"),
    [
        ({"conditions": {"Ready": "True", "GpuMemWatch": "True"}}, "condition GpuMemWatch"),
        ({"conditions": {"Ready": "False"}}, "condition Ready"),
        ({"allocatable_gpus": 7}, "allocatable GPUs"),
    ],
)
def test_a_node_whose_conditions_or_gpus_are_not_back_is_not_as_before(after: dict[str, Any], what: str) -> None:
    verdict = judge(_with_snapshots(after=after), "node-as-before")
    assert verdict.status is Status.BROKEN
    assert what in verdict.why


@pytest.mark.parametrize(
    ("after", "changes"),
    [
        ({"conditions": {"Ready": "True", "GpuMemWatch": "False"}}, {}),
        (
            {"conditions": {"Ready": "True", "GpuMemWatch": "True"}},
            {"conditions": [EXPECT["conditions"][0] | {"clears_within": None}]},
        ),
        ({"labels": {"ours/note": "cordoned at nine"}}, {"labels_left": ["ours/note"]}),
        ({"allocatable_gpus": 7}, {"allocatable_falls": {"within": "10s", "returns_within": None}}),
    ],
    ids=["a new condition that says all is well", "a condition that stays", "a detector's note", "GPUs that stay away"],
)
def test_what_the_plan_lets_stay_is_no_difference(after: dict[str, Any], changes: dict[str, Any]) -> None:
    timed = _with_snapshots(after={"labels": {}} | after, before={"labels": {}})
    assert judge(timed, "node-as-before", plan(**changes)).status is Status.HELD


def _long() -> dict[str, Any]:
    """Bounds that reach from the end of remediation, wherever that is, to GONE."""
    return {
        "conditions": [EXPECT["conditions"][0] | {"clears_within": "10m"}],
        "allocatable_falls": {"within": "10s", "returns_within": "10m"},
    }


def _with_snapshots(**changes: dict[str, Any]) -> list[Timed]:
    """The passing run with fields of its snapshots before or after the run set."""

    def changed(seen: NodeSeen) -> NodeSeen:
        base = {"conditions": {"Ready": "True"}, "allocatable_gpus": 8} | changes.get(seen.phase, {})
        return seen.model_copy(update={"snapshot": seen.snapshot.model_copy(update=base)})

    return [Timed(one.seconds, changed(one.event)) if isinstance(one.event, NodeSeen) else one for one in passing()]
