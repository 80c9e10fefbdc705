"""Write a run's frames in a process that ends: the game-day's own imports no pandas."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

from gameday import child_process
from gameday.history.frames import Columns, Frames, frame_of


def write_frames(tables: Mapping[str, Columns], folder: Path) -> None:
    """Write <name>.parquet for every frame, empty where there is no table; raises what `child_process.ask` does."""
    child_process.ask(__name__, pickle.dumps((tables, folder)))


def _write(request: bytes) -> bytes:
    tables, folder = pickle.loads(request)  # noqa: S301 - from the game-day that started this process
    Frames(**{name: frame_of(name, columns) for name, columns in tables.items()}).save(folder)
    return b""


if __name__ == "__main__":
    child_process.answer(_write)
