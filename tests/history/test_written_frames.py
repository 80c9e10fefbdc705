"""Frames that are written are those that the game-day collected."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gameday.history.frames import SCHEMAS, Frames, columns_of, frame_of, write_frames

AT = datetime(2026, 1, 1, tzinfo=UTC)


def sample(seconds: float, metric: str, value: float) -> dict[str, object]:
    return {"time": AT + timedelta(seconds=seconds), "node": "n1", "gpu": "0", "metric": metric, "value": value}


def test_they_are_read_back_sorted_as_they_were_collected(tmp_path: Path) -> None:
    pod = {"time": AT, "namespace": "ns", "pod": "p", "node": "n1", "phase": "Running"}
    tables = {
        "metrics": columns_of("metrics", [sample(1.5, "b", math.inf), sample(0, "b", 1.0), sample(2, "a", 3.0)]),
        "pods": columns_of("pods", [{**pod, "gpus": 8}, {**pod, "gpus": None}]),
    }
    write_frames(tables, tmp_path / "frames")
    frames = Frames.load(tmp_path / "frames")
    assert frames.metrics["value"].tolist() == [3.0, 1.0, math.inf]
    assert frames.metrics["time"].tolist() == [AT + timedelta(seconds=s) for s in (2, 0, 1.5)]
    assert frames.pods["gpus"].isna().tolist() == [False, True]
    for name, columns in tables.items():
        assert frame_of(name, columns).equals(getattr(frames, name))


def test_what_was_not_collected_is_an_empty_file(tmp_path: Path) -> None:
    write_frames({}, tmp_path)
    assert {file.stem for file in tmp_path.iterdir()} == set(SCHEMAS)
    assert Frames.load(tmp_path).logs.empty


def test_a_folder_that_cannot_be_made_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "frames").write_text("a file")
    with pytest.raises(FileExistsError) as caught:
        write_frames({}, tmp_path / "frames")
    assert caught.value.filename == str(tmp_path / "frames")
