"""The timings of all runs: written by one process at a time; and how long a plan's game-days usually take here."""

from __future__ import annotations

import fcntl
import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from gameday.runs import timings
from gameday.runs.run_list import RunList, list_runs
from tests.report.run_builder import passing, write


def test_no_other_writer_gets_between_the_reading_and_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "reports" / "r1", passing())

    def reading(reports: Path) -> RunList:
        other = os.open(tmp_path, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(other)
        return list_runs(reports)

    monkeypatch.setattr(timings, "list_runs", reading)
    timings.write_timings(tmp_path / "reports", tmp_path / "game-days.prom")
    assert b"gameday_run_outcome" in (tmp_path / "game-days.prom").read_bytes()
    again = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)


def run(reports: Path, id: str, seconds: float, **changes: str) -> None:
    """Write a run's report as far as its summary."""
    summary = {
        "run_id": id,
        "plan": "p",
        "title": "P",
        "plan_sha256": "",
        "cluster": "here",
        "cluster_id": "x",
        "rehearsal": False,
        "detector": None,
        "fault": None,
        "targets": [],
        "started": "2026-11-20T10:00:00Z",
        "seconds": seconds,
        "outcome": "passed",
        "cleanliness": "clean",
        "exit_code": 0,
        "why": "",
        "noticed": "yes",
        "numbers": [],
        "checks": {},
    }
    (reports / id).mkdir()
    (reports / id / "report.json").write_text(json.dumps({"format": 1, "summary": summary | changes}))


def test_the_median_of_what_was_played_to_its_end_here(tmp_path: Path) -> None:
    for number, seconds in enumerate((40, 44, 300)):
        run(tmp_path, f"run-{number}", seconds)
    run(tmp_path, "stopped", 3, outcome="aborted")
    run(tmp_path, "elsewhere", 1000, cluster="there")
    run(tmp_path, "other", 7, plan="q")
    assert timings.usual_durations(tmp_path, "here") == {"p": timedelta(seconds=44), "q": timedelta(seconds=7)}
    assert timings.usual_durations(tmp_path / "none", "here") == {}
