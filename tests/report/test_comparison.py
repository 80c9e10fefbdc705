"""A run beside the earlier runs of its plan: which are compared, what counts as slower, whose verdict changed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.history.events import RECORD, AlertSeen, HopSeen, Record, RunStarted
from gameday.report.compare import trends
from gameday.report.earlier_runs import MOST_RUNS, earlier_runs
from gameday.report.run_folder import load_run_folder
from gameday.report.summarise import summarise
from gameday.report.summary import DurationKind, Noticed, RunDuration, Summary, read_summary
from tests.report import run_builder as build
from tests.report.page import Page, drawn


def _later(record: Record, by: timedelta) -> Record:
    """Return a record of another day, with the times that its event holds."""
    times = {name: at + by for name, at in record.event if isinstance(at, datetime)}
    return replace(record, at=record.at + by, event=record.event.model_copy(update=times))


def written(reports: Path, day: int, timed: list[build.Timed] | None = None, **started: object) -> Path:
    """A run that began so many days after the builder's, rendered with the sections that look at earlier runs."""
    run_id = f"2026{day:04d}"
    timed = build.replacing(
        timed or build.passing(), lambda e: isinstance(e, RunStarted), **({"run_id": run_id} | started)
    )
    folder = build.write(reports / run_id, timed)
    records = build.history_of(timed).records
    later = [_later(record, timedelta(days=day)) for record in records]
    (folder / "history.jsonl").write_bytes(b"".join(RECORD.dump_json(r) + b"\n" for r in later))
    drawn(folder, "verdict", "comparison", "guardrails")
    return folder


def summary_of(folder: Path) -> Summary:
    summary = read_summary(folder)
    assert summary is not None
    return summary


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    """The summary of a passing run."""
    return summary_of(written(tmp_path_factory.mktemp("some"), 1))


def with_alert_after(summary: Summary, seconds: float | None) -> Summary:
    return summary.model_copy(update={"numbers": (RunDuration(measure=DurationKind.ALERT, seconds=seconds),)})


def test_the_earlier_runs_of_the_plan_are_found_oldest_first(tmp_path):
    for day in (3, 1, 2):
        written(tmp_path, day)
    written(tmp_path, 5)  # began later
    written(tmp_path, 0, plan_name="another-plan")
    real = written(tmp_path, 6, cluster_id="another-cluster")
    newest = written(tmp_path, 4)
    shutil.copytree(tmp_path / "20260003", tmp_path / "sample")  # the repository's own is nobody's earlier run
    assert [s.run_id for s in earlier_runs(newest, summarise(load_run_folder(newest)))] == [
        "20260001",
        "20260002",
        "20260003",
    ]
    assert earlier_runs(real, summarise(load_run_folder(real))) == ()  # its times say nothing of this cluster's
    data = json.loads((newest / "report.json").read_text())["sections"]["comparison"]
    assert [run["run_id"] for run in data["runs"]] == ["20260001", "20260002", "20260003", "20260004"]
    text = Page((newest / "report.html").read_text()).text("comparison")
    assert "Beside 3 earlier runs" in text and "No check’s verdict changed" in text
    assert "the last" not in Page((newest / "report.html").read_text()).text("verdict")  # within the spread: no news


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"summary": null}', b'{"summary": {"run_id": 7}}', b"[" * 100_000, b"\xff\xfe"],
    ids=lambda content: content[:12],
)
def test_a_neighbour_that_cannot_be_read_is_passed_over(tmp_path, content):
    folder = build.write(tmp_path / "now", build.passing())
    neighbour = tmp_path / "neighbour"
    neighbour.mkdir()
    (neighbour / "report.json").write_bytes(content)
    (tmp_path / "a-file").write_text("no folder")
    assert earlier_runs(folder, summarise(load_run_folder(folder))) == ()


def test_no_more_runs_than_can_be_looked_at(tmp_path):
    one = written(tmp_path / "one", 1)
    content = json.loads((one / "report.json").read_text())
    for n in range(MOST_RUNS + 5):
        folder = tmp_path / f"run-{n:03d}"
        folder.mkdir()
        content["summary"] |= {"run_id": f"r{n}", "started": f"2026-02-01T{n:02d}:00:00Z"}
        (folder / "report.json").write_text(json.dumps(content))
    newest = build.write(tmp_path / "zzz", build.passing())
    found = earlier_runs(newest, summarise(load_run_folder(newest)))
    assert [summary.run_id for summary in found] == [f"r{n}" for n in range(5, MOST_RUNS + 5)]


@pytest.mark.parametrize(
    ("earlier", "now", "regressed"),
    [
        ((5.0, 5.2, 4.8), 5.1, False),
        ((5.0, 5.2, 4.8), 5.69, False),  # above the slowest, by less than half a second
        ((5.0, 5.2, 4.8), 5.71, True),
        ((60.0, 61.0, 62.0), 64.0, False),  # by less than 5 %
        ((60.0, 61.0, 62.0), 66.0, True),
        ((5.0, 5.2), 50.0, None),  # two make no peak
        ((5.0, None, 5.2, None), 50.0, None),
        ((5.0, None, 5.2, 4.8), 50.0, True),
        ((5.0, 5.2, 4.8), None, None),
        ((), 5.0, None),
    ],
)
def test_what_counts_as_a_regression(some, earlier, now, regressed):
    (trend,) = trends(
        [RunDuration(measure=DurationKind.ALERT, seconds=now)], [with_alert_after(some, s) for s in earlier]
    )
    assert trend.regressed is regressed
    assert trend.previous_s == (earlier[-1] if earlier else None)


def test_a_slower_run_is_flagged_in_the_first_screen(tmp_path):
    for day in (1, 2, 3):
        written(tmp_path, day)
    later = {"at": build.at(build.FAULT_AT + 20)}
    slow = build.replacing(build.passing(), lambda e: isinstance(e, AlertSeen) and e.state == "firing", **later)
    page = Page((written(tmp_path, 4, slow) / "report.html").read_text())
    assert "slower than the last 3 that passed, at most 5.4 s" in page.text("verdict")
    assert "Slower than the last 3 that passed" in page.text("comparison")


@pytest.mark.parametrize(
    "unsound", [{"outcome": RunOutcome.FAILED}, {"outcome": RunOutcome.UNKNOWN}, {"status": Status.BROKEN}]
)
def test_the_peak_is_of_runs_that_passed_within_the_bound(some, unsound):
    number = RunDuration(measure=DurationKind.ALERT, seconds=29.0, status=unsound.get("status"))
    bad = some.model_copy(update={"outcome": unsound.get("outcome", some.outcome), "numbers": (number,)})
    now = [RunDuration(measure=DurationKind.ALERT, seconds=9.0)]
    good = [with_alert_after(some, seconds) for seconds in (5.0, 5.2, 4.8)]
    (trend,) = trends(now, [*good, bad])
    assert (trend.regressed, trend.slowest_s, trend.median_s, trend.sound) == (True, 5.2, 5.0, 3)
    assert trend.previous_s == 29.0
    (trend,) = trends(now, [*good[:2], bad])
    assert trend.regressed is None


def test_a_verdict_that_changed_is_named(tmp_path):
    written(tmp_path, 1)
    folder = written(tmp_path, 2, build.detector_off())
    changed = json.loads((folder / "report.json").read_text())["sections"]["comparison"]["changed"]
    assert {"check": "alert-fires", "before": "held", "now": "broken"} in changed
    assert "alert-fires" in Page((folder / "report.html").read_text()).text("comparison")


def test_a_changed_plan_is_said(tmp_path):
    written(tmp_path, 1, plan_sha256="0" * 64)
    assert "The plan file changed" in Page((written(tmp_path, 2) / "report.html").read_text()).text("comparison")


def test_the_summary_says_whether_the_cluster_noticed(tmp_path):
    passing = summary_of(written(tmp_path, 1))
    assert passing.noticed is Noticed.YES and passing.seconds_of(DurationKind.TAINT) == pytest.approx(0.97)
    assert passing.checks["alert-fires"] is Status.HELD
    assert summary_of(written(tmp_path, 2, build.detector_off())).noticed is Noticed.NO
    killed = written(tmp_path, 3, build.cut_off(build.passing(), 12.5))
    assert summary_of(killed).noticed is Noticed.UNKNOWN
    said = "Not known : alert firing: not seen before the history stops; node tainted 0.97 s after the fault."
    assert said in Page((killed / "report.html").read_text()).text("verdict")
    untainted = build.without(
        build.passing(), lambda e: e.kind == "taint_seen", lambda e: isinstance(e, HopSeen) and e.hop == "node tainted"
    )
    partly = written(tmp_path, 4, untainted)
    assert summary_of(partly).noticed is Noticed.PARTLY
    assert "Did the cluster notice? In part" in Page((partly / "report.html").read_text()).text("verdict")
