"""Expectations about a step that the flow leaves out are not asked; about a step that did not run they are unknown."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gameday.checks.outcome import RunOutcome, fold_outcome
from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import IntentRecorded, QaChecked, StepStarted, TaintSeen, WorkloadSeen
from gameday.history.frames import Frames
from gameday.report.junit import junit
from gameday.report.noticed import noticed
from gameday.report.render import render
from gameday.report.run_folder import load_run_folder
from gameday.report.summary import Noticed
from gameday.values.results import Step, StepOutcome
from tests.report.page import Page
from tests.report.run_builder import PLAN, Timed, detector_off, ended, history_of, passing, without, write

ABOUT = {
    Step.BASELINE: {"steady-state"},
    Step.INJECT: {"fault-in"},
    Step.AWAIT_ALERT: {"alert-fires", "no-other-alerts"},
    Step.VERIFY_TAINT: {"taint-set", "workload-canary", "workload-resubmitted", "workload-running"},
    Step.RECOVER: {"alert-resolves", "remediation"},
    Step.QA_NODE: {"workload-return", "qa"},
}
WHY = "this flow leaves it out"


def left_out(timed: list[Timed], *steps: Step) -> list[Timed]:
    """The run of a flow that leaves these steps out."""
    timed = without(timed, lambda e: isinstance(e, StepStarted) and e.step in steps)
    for step in steps:
        timed = ended(timed, step, StepOutcome.NOT_ASKED, WHY)
    return timed


def verdicts_of(timed: list[Timed]) -> dict[str, Verdict]:
    return {verdict.check: verdict for verdict in run_checks(PLAN, history_of(timed), Frames())}


@pytest.mark.parametrize("step", Step)
def test_the_expectations_about_a_step_that_the_flow_leaves_out_are_not_asked_and_the_others_hold(step: Step) -> None:
    found = verdicts_of(left_out(passing(), step))
    assert {check for check, verdict in found.items() if verdict.status is Status.NOT_ASKED} == ABOUT[step]
    assert {found[check].why for check in ABOUT[step]} == {WHY}
    assert {v.status for check, v in found.items() if check not in ABOUT[step]} == {Status.HELD}


def test_what_nobody_looked_for_is_neither_broken_nor_unknown() -> None:
    unseen = without(passing(), lambda e: isinstance(e, (TaintSeen, WorkloadSeen, QaChecked)))
    found = verdicts_of(left_out(unseen, Step.VERIFY_TAINT, Step.QA_NODE))
    asked_for = ABOUT[Step.VERIFY_TAINT] | ABOUT[Step.QA_NODE]
    assert {found[check].status for check in asked_for} == {Status.NOT_ASKED}


@pytest.mark.parametrize("outcome", [StepOutcome.NOT_REACHED, StepOutcome.ABORTED, StepOutcome.UNKNOWN])
def test_a_step_that_was_asked_and_did_not_run_to_its_end_leaves_its_expectations_unknown(outcome: StepOutcome) -> None:
    unseen = without(passing(), lambda e: isinstance(e, TaintSeen))
    found = verdicts_of(ended(unseen, Step.VERIFY_TAINT, outcome, "Ctrl-C"))
    assert found["taint-set"].status is Status.UNKNOWN


def test_the_outcome_is_computed_from_what_was_asked() -> None:
    history = history_of(left_out(passing(), Step.VERIFY_TAINT, Step.RECOVER))
    result = fold_outcome(history, run_checks(PLAN, history, Frames()))
    assert result.outcome is RunOutcome.PASSED
    assert result.why.startswith("All 8 expectations held")


def test_a_run_of_which_nothing_was_asked_has_not_passed() -> None:
    history = history_of(passing())
    verdict = Verdict(check="a", expectation="A", status=Status.NOT_ASKED)
    assert fold_outcome(history, [verdict]).outcome is RunOutcome.UNKNOWN


def test_a_flow_that_breaks_nothing_is_not_asked_to_prove_an_undo() -> None:
    timed = without(passing(), lambda e: isinstance(e, IntentRecorded))
    assert verdicts_of(left_out(timed, Step.INJECT))["undo-proof"].status is Status.NOT_ASKED


def test_the_report_says_not_asked_in_the_tally_the_table_and_the_steps(tmp_path: Path) -> None:
    write(tmp_path, left_out(passing(), Step.VERIFY_TAINT))
    page = Page(render(tmp_path, datetime(2026, 3, 4, 12, 0, tzinfo=UTC)).html.read_text(encoding="utf-8"))
    rows = [row for row in page.attributes("tr") if row.get("class") == "r-not-asked"]
    assert len(rows) == len(ABOUT[Step.VERIFY_TAINT])
    assert "4 not asked" in page.text("verdict")
    assert page.text("expectations").count("Not asked") == 4
    assert "not asked" in page.text("timeline")
    assert "o-not-asked" in [row.get("class") for row in page.attributes("tr")]


def test_a_report_of_a_whole_game_day_does_not_speak_of_it(tmp_path: Path) -> None:
    write(tmp_path, passing())
    page = render(tmp_path, datetime(2026, 3, 4, 12, 0, tzinfo=UTC)).html.read_text(encoding="utf-8")
    assert "not asked" not in Page(page).text("verdict")


def test_junit_skips_what_was_not_asked(tmp_path: Path) -> None:
    suite = ElementTree.fromstring(
        junit(load_run_folder(write(tmp_path, left_out(passing(), Step.VERIFY_TAINT))))
    ).find("testsuite")
    assert suite is not None
    assert [suite.get(name) for name in ("failures", "errors", "skipped")] == ["0", "0", "4"]
    assert {case.get("message") for case in suite.iter("skipped")} == {WHY}


def test_junit_is_red_for_a_broken_run_though_something_was_skipped(tmp_path: Path) -> None:
    broken = ended(left_out(passing(), Step.VERIFY_TAINT), Step.QA_NODE, StepOutcome.BROKEN, "it takes no work")
    suite = ElementTree.fromstring(junit(load_run_folder(write(tmp_path, broken)))).find("testsuite")
    assert suite is not None
    assert suite.get("failures") == "1"


def test_signals_that_nobody_looked_for_do_not_make_the_fault_unnoticed(tmp_path: Path) -> None:
    write(tmp_path / "some", left_out(detector_off(), Step.VERIFY_TAINT))
    write(tmp_path / "none", left_out(detector_off(), Step.VERIFY_TAINT, Step.AWAIT_ALERT))
    assert noticed(load_run_folder(tmp_path / "some")) is Noticed.NO
    assert noticed(load_run_folder(tmp_path / "none")) is Noticed.NOT_ASKED
