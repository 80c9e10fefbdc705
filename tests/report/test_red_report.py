"""A red report says what did not hold, why, and what to do: by doctor's answer, which the run kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.history.events import DoctorAsked, DoctorFinding
from gameday.report.doctors_word import doctors_word
from gameday.report.junit import junit
from gameday.report.run_folder import load_run_folder
from gameday.report.run_markdown import run_markdown
from gameday.values.results import Step
from tests.report import run_builder as build
from tests.report.page import drawn

SCRAPE = DoctorFinding(
    area="prometheus", check="rule can fire", ok=False, found="no scraped target has <m>", fix="scrape the controller"
)
SAME_FIX = SCRAPE.model_copy(update={"found": "another rule cannot fire"})
UNSURE = DoctorFinding(area="logs", check="kernel log", ok=None, found="no line within 24 h", fix="see to the shipper")
SECTIONS = ("verdict", "chain", "actions")


def red(folder: Path, *findings: DoctorFinding, **more: str) -> Path:
    asked = DoctorAsked(steps=(Step.AWAIT_ALERT, Step.VERIFY_TAINT), checks=9, findings=findings, **more)
    return build.write(folder, [*build.detector_off(), build.Timed(46.0, asked)])


def test_the_chain_breaks_for_doctors_reason_and_the_fix_is_the_first_action(tmp_path: Path) -> None:
    page, data = drawn(red(tmp_path / "run", SCRAPE, SAME_FIX, UNSURE), *SECTIONS)
    for section in ("verdict", "chain", "problems"):
        assert "no scraped target has <m>" in page.text(section).replace("No scraped", "no scraped"), section
    assert "Broken: Alert GpuXidCritical fires" in page.text("problems")
    assert "gameday rehearse" in page.text("problems")
    assert data["actions"]["proposed"] == ["scrape the controller", "see to the shipper"]
    assert "Scrape the controller" in page.text("actions") and "proposed" in page.text("actions")
    assert data["actions"]["open"] == 0


def test_a_persons_own_actions_take_the_place_of_doctors(tmp_path: Path) -> None:
    folder = red(tmp_path / "run", SCRAPE)
    (folder / "notes.yaml").write_text("actions: [{what: page somebody}]")
    page, data = drawn(folder, *SECTIONS)
    assert data["actions"]["proposed"] == [] and "Page somebody" in page.text("actions").replace("page s", "Page s")


def test_where_doctor_found_nothing_the_detector_itself_is_next(tmp_path: Path) -> None:
    page, data = drawn(red(tmp_path / "run"), *SECTIONS)
    assert "all 9 checks" in page.text("verdict") and "the detector's own log" in page.text("verdict")
    assert data["actions"]["proposed"] == []


def test_a_failed_run_that_asked_nobody_still_names_what_did_not_hold(tmp_path: Path) -> None:
    page, data = drawn(build.write(tmp_path / "run", build.detector_off()), *SECTIONS)
    assert data["problems"]["doctor"] is None and "doctor" not in page.text("chain")
    assert "Broken: Alert GpuXidCritical fires" in page.text("problems")
    assert "None on record" not in page.text() and "gameday rehearse" in page.text("problems")


def test_the_exports_say_the_same(tmp_path: Path) -> None:
    run = load_run_folder(red(tmp_path / "run", SCRAPE, SAME_FIX))
    assert b"doctor: no scraped target has &lt;m&gt;; scrape the controller" in junit(run)
    words = run_markdown(run, tmp_path / "report.html", None)
    assert "- doctor: no scraped target has &lt;m&gt;; scrape the controller\n" in words
    assert "another rule" not in words


@pytest.mark.parametrize("outcome", list(RunOutcome))
def test_a_run_that_passed_needs_no_explanation(tmp_path: Path, outcome: RunOutcome) -> None:
    history = load_run_folder(red(tmp_path / "run", SCRAPE)).history
    assert (doctors_word(history, outcome) is None) is (outcome is RunOutcome.PASSED)


def test_the_headline_names_two_broken_expectations_in_plain_words(tmp_path: Path) -> None:
    why = load_run_folder(red(tmp_path / "run", SCRAPE)).result.why
    assert "Alert GpuXidCritical fires" in why and "Taint trainy.konduktor.ai/faulty" in why
    assert "waited for the alert" in why and "'await alert'" not in why
