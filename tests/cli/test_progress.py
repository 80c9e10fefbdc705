"""A season and a fleet run say how far they have got, and when they will end."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from gameday.cli import season_view
from gameday.cli.progress import how_far
from gameday.cli.season_view import SeasonView
from gameday.runs.season_record import Assignment, DrawnTime, SeasonRecord
from gameday_fleet.cli import fleet_view
from gameday_fleet.cli.fleet_view import FleetView
from gameday_fleet.record import FleetRecord, NodeLeftOut, add_probes


@pytest.mark.parametrize(
    ("done", "total", "left_s", "said"),
    [
        (12, 76, 545, "12 of 76, about 9 minutes left"),
        (1, 2, 61, "1 of 2, about 1 minute left"),
        (1, 2, 5, "1 of 2, less than a minute left"),
        (2, 2, 0, "2 of 2"),
    ],
)
def test_it_is_said_in_minutes(done: int, total: int, left_s: float, said: str) -> None:
    assert how_far(done, total, left_s) == said


def season(reports: Path, *drawn: float | None) -> Path:
    """Write a season's record and the end of its first game-day."""
    times = [None if at is None else DrawnTime(at_s=at, latest_s=9e9, seed=1) for at in drawn]
    places = [
        Assignment(run_id=f"s-{number}", plan="p", asked_as="p", targets=("n",), drawn=time)
        for number, time in enumerate(times, 1)
    ]
    common = {"cluster": "c", "trigger": "manual", "command": "c", "seed": 1, "at_once": 1, "left_out": ()}
    started = datetime(2026, 11, 28, tzinfo=UTC)
    SeasonRecord.model_validate({"id": "s", "started": started, "places": places, **common}).save(reports / "s")
    (reports / "s-1").mkdir()
    result = {"outcome": "passed", "why": "", "cleanliness": "clean", "exit_code": 0}
    (reports / "s-1" / "report.json").write_text(json.dumps({"result": result}))
    return reports / "s"


@pytest.mark.parametrize(
    ("drawn", "said"),
    [((None,) * 4, "passed  1 of 4, about 5 minutes left"), ((0.0, 340.0), "passed  1 of 2, about 4 minutes left")],
)
def test_a_season_goes_by_its_own_pace_and_a_random_one_by_its_times(
    drawn: tuple[float | None, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, out = season(tmp_path, *drawn), io.StringIO()
    now = [0.0]
    monkeypatch.setattr(season_view.time, "monotonic", lambda: now[0])
    view = SeasonView(tmp_path, "s", Console(file=out, width=200), own)
    now[0] = 100.0
    view._look()
    assert said in out.getvalue()


def test_a_fleet_run_counts_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, out = [0.0], io.StringIO()
    monkeypatch.setattr(fleet_view.time, "monotonic", lambda: now[0])
    view = FleetView(tmp_path, Console(file=out, width=200))
    common = {"id": "f", "cluster": "c", "trigger": "manual", "command": "c", "at_once": 1, "seconds": 5.0}
    FleetRecord.model_validate({**common, "started": datetime(2026, 11, 28, tzinfo=UTC), "nodes": 3}).save(tmp_path)
    add_probes(tmp_path, [NodeLeftOut(node="n1", gpus=8, why="busy")])
    now[0] = 120.0
    view._look()
    assert out.getvalue().rstrip().endswith("8 GPUs not measured: busy  1 of 3, about 4 minutes left")
