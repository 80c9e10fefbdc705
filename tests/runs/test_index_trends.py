"""Each plan's time over its runs, on the index page: which time, which rule, which order, and hostile titles."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.history.events import AlertSeen, TaintSeen
from gameday.report.summary import DurationKind
from gameday.runs.catalog import read_catalog
from gameday.runs.index import PlanTrend, plan_trends, render_index
from tests.report.page import Page
from tests.report.run_builder import cut_off, passing, without
from tests.runs.test_digest import HOSTILE, WEEK_END, put, slow_alert


def trends_of(reports: Path) -> tuple[PlanTrend, ...]:
    return plan_trends(read_catalog(reports))


def page_of(reports: Path) -> Page:
    return Page(render_index(reports, read_catalog(reports), WEEK_END).read_text())


def test_a_last_run_above_all_earlier_ones_is_marked_and_comes_first(tmp_path: Path) -> None:
    for days in (-4, -3, -2):
        put(tmp_path, days, passing())
        put(tmp_path, days - 10, passing(), plan_name="another", cluster_uid="b")
    put(tmp_path, 0, slow_alert(4))
    regressed, other = trends_of(tmp_path)
    assert regressed.trend
    assert other.trend
    assert (regressed.trend.measure, regressed.trend.regressed) == (DurationKind.ALERT, True)
    assert (regressed.trend.now_s, regressed.trend.earlier_s) == (pytest.approx(9.4), pytest.approx((5.4, 5.4, 5.4)))
    assert (other.newest.summary.plan, other.trend.regressed) == ("another", None)
    page = page_of(tmp_path)
    said = page.text("trends")
    assert "Slower than the last 3 that passed" in said
    assert "where at least 3 of those measured it" in said
    names = [attrs["aria-label"] for tag, attrs in page.tags if tag == "svg"]
    assert "Time to alert of 3 earlier runs, then of the last: 9.4 s" in names


def test_two_earlier_runs_judge_nothing(tmp_path: Path) -> None:
    for days in (-2, -1):
        put(tmp_path, days, passing())
    put(tmp_path, 0, slow_alert(60))
    (one,) = trends_of(tmp_path)
    assert one.trend
    assert one.trend.regressed is None
    assert "not judged" in page_of(tmp_path).text("trends")


def test_a_plan_without_an_alert_shows_its_next_time(tmp_path: Path) -> None:
    put(tmp_path, 0, without(passing(), lambda e: isinstance(e, AlertSeen)))
    (one,) = trends_of(tmp_path)
    assert one.trend
    assert one.trend.measure is DurationKind.TAINT


def test_a_last_run_that_saw_no_alert_is_not_measured_and_keeps_the_plans_time(tmp_path: Path) -> None:
    put(tmp_path, -1, passing())
    put(tmp_path, 0, without(passing(), lambda e: isinstance(e, (AlertSeen, TaintSeen))))
    (one,) = trends_of(tmp_path)
    assert one.trend
    assert (one.trend.measure, one.trend.now_s, one.trend.earlier_s) == (
        DurationKind.ALERT,
        None,
        (pytest.approx(5.4),),
    )


def test_a_plan_that_never_measured_a_time_says_so(tmp_path: Path) -> None:
    put(tmp_path, 0, cut_off(passing(), 5), plan_name=HOSTILE)
    (one,) = trends_of(tmp_path)
    assert one.trend is None
    page = page_of(tmp_path)
    assert "not measured" in page.text("trends")
    assert HOSTILE not in page.html


def test_an_empty_folder_has_no_trends(tmp_path: Path) -> None:
    assert 'id="trends"' not in page_of(tmp_path).html
