"""A report of a run that a detector watched which the plan does not reckon with: its sections must agree."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gameday.history.events import CordonSeen, DetectorConsulted, TaintSeen
from gameday.plan.models import Plan
from gameday.report.lanes import story_lanes
from gameday.report.run_folder import RunFolder, load_run_folder
from gameday.report.sections import chain, gpus, identity, verdict
from gameday.report.summarise import summarise
from gameday.report.summary import DurationKind, Noticed
from gameday.values.nodes import Taint
from tests.report import run_builder as build

KONDUKTOR = "OpenAPI-Generator"
"""The manager under which Konduktor's controller writes."""
TAINTED_AFTER_S = 4.8
LIFECYCLE = Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule")


def plan_without_taints() -> Plan:
    """The plan of a negative control: it names no signal, and nothing may happen to the node."""
    quiet = {"alerts": (), "taints": (), "stays_schedulable_for": timedelta(seconds=5)}
    return build.PLAN.model_copy(update={"expect": build.PLAN.expect.model_copy(update=quiet)})


def tainted(seconds: float, taint: Taint = build.TAINT) -> build.Timed:
    at = build.FAULT_AT + seconds
    return build.Timed(at, TaintSeen(node=build.NODE, taint=taint, present=True, manager=KONDUKTOR, at=build.at(at)))


def watched_by_konduktor(folder: Path, *events: build.Timed, plan: Plan | None = None) -> RunFolder:
    timed = [*build.detector_off(), *events]
    return load_run_folder(build.write(folder, timed, plan=plan or plan_without_taints()))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return watched_by_konduktor(tmp_path, tainted(0.1, LIFECYCLE), tainted(TAINTED_AFTER_S))


def hop(run: RunFolder) -> chain.HopRow:
    return next(row for row in chain.build(run).chains[0].rows if row.hop == "node tainted")


def to_taint(run: RunFolder) -> float | None:
    summary = summarise(run)
    assert summary is not None
    return summary.seconds_of(DurationKind.TAINT)


def test_the_chain_shows_the_taint_that_the_timeline_shows(run: RunFolder) -> None:
    assert hop(run).end_s == pytest.approx(TAINTED_AFTER_S)
    assert hop(run).source == f"{KONDUKTOR}, {build.TAINT}"
    assert list(story_lanes(run).lanes)[1].label == "Taint faulty"
    assert [(one.letter, one.at_s) for one in gpus.moments_of(run, build.NODE)][1] == ("T", pytest.approx(4.8))


def test_the_time_to_a_taint_that_nobody_asked_for_is_measured(run: RunFolder) -> None:
    assert to_taint(run) == pytest.approx(TAINTED_AFTER_S)


def test_the_first_screen_names_the_taint_though_nothing_was_asked(run: RunFolder) -> None:
    strip = verdict.build(run)
    assert strip.noticed is Noticed.NOT_ASKED
    assert f"{build.NODE} was tainted all the same: {build.TAINT}, 4.8 s after the fault by {KONDUKTOR}" in (
        strip.noticed_how
    )


def test_the_taint_that_the_plan_names_comes_before_an_earlier_one_of_another_key(tmp_path: Path) -> None:
    other = Taint(key="example.com/sick", effect="NoSchedule")
    run = watched_by_konduktor(tmp_path, tainted(2, other), tainted(TAINTED_AFTER_S), plan=build.PLAN)
    assert hop(run).end_s == pytest.approx(TAINTED_AFTER_S)
    assert to_taint(run) == pytest.approx(TAINTED_AFTER_S)


@pytest.mark.parametrize("event", [tainted(-3), tainted(1, LIFECYCLE)], ids=["before the fault", "node lifecycle"])
def test_a_taint_that_is_no_answer_to_the_fault_is_none(tmp_path: Path, event: build.Timed) -> None:
    run = watched_by_konduktor(tmp_path, event)
    assert hop(run).at is None
    assert to_taint(run) is None
    assert "all the same" not in verdict.build(run).noticed_how


@pytest.mark.parametrize(("seconds", "is_seen"), [(1.8, True), (-2.0, False), (12.5, False)])
def test_a_cordon_between_fault_and_recovery_is_a_quarantine_as_well(
    tmp_path: Path, seconds: float, is_seen: bool
) -> None:
    at = build.FAULT_AT + seconds  # the recover step, which cordons nodes itself, begins 11.7 s after the fault
    run = watched_by_konduktor(tmp_path, build.Timed(at, CordonSeen(node=build.NODE, cordoned=True, at=build.at(at))))
    assert hop(run).end_s == (pytest.approx(seconds) if is_seen else None)


def test_the_identity_names_no_detector_that_the_plan_does_not_name(run: RunFolder, tmp_path: Path) -> None:
    assert run.plan is not None
    assert run.plan.detector == "gameday", "a stored plan has every default written"
    assert identity.build(run).detector is None
    consulted = DetectorConsulted(detector="konduktor", title="Konduktor", source="docs", sees=True, filled=())
    named = watched_by_konduktor(tmp_path / "named", build.Timed(0.2, consulted))
    assert identity.build(named).detector == "konduktor"
