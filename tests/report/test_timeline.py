"""The report's timeline: what happened, in the order of cause and effect, and nothing of the ledger's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from gameday.history.events import FaultUndone
from gameday.report.run_folder import load_run_folder
from gameday.report.sections import timeline
from gameday.report.sections.timeline import TimelineRow
from gameday.values.results import Cleanliness
from tests.report import run_builder as build


def rows_of(folder: Path, timed: Iterable[build.Timed]) -> tuple[TimelineRow, ...]:
    return timeline.build(load_run_folder(build.write(folder, timed))).lines


def test_it_says_that_the_fault_came_out_and_nothing_of_the_ledger(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, build.passing())
    assert not [row for row in rows if row.actor == "ledger" or "intent" in row.text.lower()]
    out = [(row.actor, row.text, row.tone) for row in rows if row.actor == "flow"]
    assert out == [("flow", f"Fault xid out of {build.NODE}, read back clean", "good")]


@pytest.mark.parametrize(
    ("intent", "said"),
    [
        ("i2", f"Undo of fault xid on {build.NODE}, read back dirty, 3 attempts"),
        ("i1", f"Undo of a change on {build.NODE}, read back dirty, 3 attempts"),
    ],
)
def test_it_says_of_whatever_was_not_undone(intent: str, said: str, tmp_path: Path) -> None:
    dirty = build.replacing(
        build.passing(),
        lambda e: isinstance(e, FaultUndone) and e.intent == intent,
        cleanliness=Cleanliness.DIRTY,
        attempts=3,
    )
    assert [(row.text, row.tone) for row in rows_of(tmp_path, dirty) if "dirty" in row.text] == [(said, "bad")]
