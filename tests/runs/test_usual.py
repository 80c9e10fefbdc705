"""How long game-days usually take is read off the runs that were played to their end on the same cluster."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from gameday.runs.timings import usual_durations


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
    assert usual_durations(tmp_path, "here") == {"p": timedelta(seconds=44), "q": timedelta(seconds=7)}
    assert usual_durations(tmp_path / "none", "here") == {}
