from __future__ import annotations

from pathlib import Path

from gameday.history.events import RunStarted
from tests.report.run_builder import Timed, passing, replacing, write


def run_named(folder: Path, id: str, events: list[Timed] | None = None) -> Path:
    """Write a run of this id into a folder of its own, and return that."""
    timed = replacing(events or passing(), lambda e: isinstance(e, RunStarted), run_id=id)
    return write(folder / id, timed)
