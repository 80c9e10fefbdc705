"""The report's timeline: what happened, in the order of cause and effect, and nothing of the ledger's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from gameday.history.events import AlertSeen, FaultInjected, FaultUndone, KubernetesEventSeen
from gameday.report.formatting import offset
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


def test_an_alert_that_is_noted_again_with_its_receivers_has_one_row(tmp_path: Path) -> None:
    again = build.replacing(
        [one for one in build.passing() if isinstance(one.event, AlertSeen) and one.event.state == "firing"],
        lambda e: isinstance(e, AlertSeen),
        receivers=("another",),
    )
    rows = rows_of(tmp_path, [*build.passing(), *again])
    said = f"Alert {build.ALERT} firing for {build.NODE}"
    assert [row.text for row in rows if row.text.startswith(said)] == [said]


def test_the_targets_are_there_with_how_they_were_chosen(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, build.passing())
    assert f"Target chosen: {build.TARGET}, from 8 opted-in nodes (seed 7)" in [row.text for row in rows]


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


def event(seen_at: float, stamp: float) -> build.Timed:
    """Return an Event in the run's history, and the second of its stamp."""
    at = build.at(stamp)
    seen = KubernetesEventSeen(
        node=build.NODE, reason="GpuXid79", type="Warning", source="gameday-health", message="quarantined", at=at
    )
    return build.Timed(seen_at, seen)


SECOND = 9
FAULT_IN = SECOND + 0.69


@pytest.mark.parametrize(
    ("seen_at", "stamp", "is_after", "until"),
    [
        (SECOND + 0.9, SECOND, True, "T+0.21 s"),
        (SECOND + 1.4, SECOND, True, "T+0.31 s"),
        pytest.param(SECOND + 0.5, SECOND, False, "T−0.19 s", id="seen before the fault"),
        pytest.param(SECOND + 0.9, SECOND - 1, False, "T−0.69 s", id="of the second before"),
        pytest.param(SECOND + 0.9, SECOND + 0.6, False, None, id="with a fraction"),
    ],
)
def test_an_event_of_whole_seconds_stands_below_the_fault_that_it_follows(
    seen_at: float, stamp: float, is_after: bool, until: str | None, tmp_path: Path
) -> None:
    timed = build.replacing(build.passing(), lambda e: isinstance(e, FaultInjected), written_at=build.at(FAULT_IN))
    rows = rows_of(tmp_path, [*timed, event(seen_at, stamp)])
    texts = [row.text.partition(" on ")[0] for row in rows]
    assert (texts.index("Event GpuXid79") > texts.index("Fault xid in")) is is_after
    (row,) = [row for row in rows if row.text.startswith("Event GpuXid79")]
    assert (None if row.until_s is None else offset(row.until_s)) == until
