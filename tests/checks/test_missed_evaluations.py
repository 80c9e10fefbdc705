"""What Prometheus may have missed is unknown: the alert that did not fire, and that no other did."""

from __future__ import annotations

from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.detectors.signals import Signal
from gameday.history.events import AlertSeen, PrometheusFellBehind
from gameday.history.frames import Frames
from gameday.runs.cells import CellState
from tests.checks.test_check_verdicts import other_alert
from tests.report.run_builder import PLAN, Timed, at, history_of, passing, without
from tests.runs.test_matrix import cell

BEHIND = Timed(60, PrometheusFellBehind(since=at(0), until=at(60), why="it scraped nothing for 20 s", hint="do this"))
SILENT = without(passing(), lambda event: isinstance(event, AlertSeen))


def judge(check: str, *timed: Timed) -> Verdict:
    (found,) = [one for one in run_checks(PLAN, history_of(timed), Frames()) if one.check == check]
    return found


def test_an_absent_alert_is_broken_only_where_prometheus_kept_up() -> None:
    assert judge("alert-fires", *SILENT).status is Status.BROKEN
    verdict = judge("alert-fires", *SILENT, BEHIND)
    assert verdict.status is Status.UNKNOWN
    assert verdict.why == "Prometheus did not keep up: it scraped nothing for 20 s; do this"


def test_that_no_other_alert_fired_is_held_only_where_prometheus_kept_up() -> None:
    assert judge("no-other-alerts", *passing()).status is Status.HELD
    verdict = judge("no-other-alerts", *passing(), BEHIND)
    assert (verdict.status, verdict.measured) == (Status.UNKNOWN, "")
    assert "do this" in verdict.why


def test_an_alert_that_was_seen_counts_whatever_was_missed_beside_it() -> None:
    assert judge("alert-fires", *passing(), BEHIND).status is Status.HELD
    assert judge("no-other-alerts", *passing(), other_alert(), BEHIND).status is Status.BROKEN


def test_in_the_matrix_the_alert_is_unknown_and_no_gap() -> None:
    assert cell(Signal.ALERT, timed=SILENT).state is CellState.MISSED
    found = cell(Signal.ALERT, BEHIND, timed=SILENT)
    assert (found.state, "did not keep up" in found.why) == (CellState.UNKNOWN, True)
