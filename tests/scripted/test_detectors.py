"""The shipped plans for a detector, against one that does what its profile says, and against none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.detectors.resolve import load_complete_plan
from gameday.history.events import ConditionSeen, KubernetesEventSeen, LabelSeen
from gameday.plan.load import LoadedPlan
from tests.support.scripted.game_day import play
from tests.support.scripted.script import Script

PLANS = Path(__file__).parents[2] / "plans" / "detectors"
QUARANTINES = (
    "dcgm-exporter-xid-79",
    "eks-xid-95",
    "konduktor-xid-13",
    "konduktor-xid-79",
    "node-problem-detector-xid-79",
    "nvsentinel-row-remap-failure",
    "nvsentinel-xid-79",
)


def plan_of(name: str) -> LoadedPlan:
    return load_complete_plan(PLANS / f"{name}.yaml", (), "gameday")


@pytest.mark.parametrize("name", (*QUARANTINES, "blog-xid-14", "nvsentinel-xid-13"))
def test_a_plan_holds_against_a_detector_that_does_what_its_profile_says(name: str, reports: Path) -> None:
    played = play(plan_of(name), reports=reports)
    assert (played.outcome, played.not_held, played.cluster.left()) == (RunOutcome.PASSED, [], [])


@pytest.mark.parametrize("name", QUARANTINES)
def test_the_plan_fails_without_its_detector(name: str, reports: Path) -> None:
    played = play(plan_of(name), Script.without_detector, reports=reports)
    assert (played.outcome, played.cluster.left()) == (RunOutcome.FAILED, [])
    said = {"alert-fires", "taint-set", "cordoned", "condition-set", "label-set", "event-written"}
    asked = [one for one in played.verdicts if one.check in said]
    assert asked and {one.status for one in asked} == {Status.BROKEN}


def test_what_a_detector_says_is_in_the_history_with_its_end(reports: Path) -> None:
    history = play(plan_of("node-problem-detector-xid-79"), reports=reports).history
    statuses = [seen.status for seen in history.of(ConditionSeen) if seen.condition == "GPUXidFault"]
    assert statuses == ["True", "False"]
    assert [seen.reason for seen in history.of(KubernetesEventSeen)] == ["GPUXidHardware"]
    labels = play(plan_of("nvsentinel-xid-79"), reports=reports).history.of(LabelSeen)
    assert {seen.value for seen in labels} >= {None}
