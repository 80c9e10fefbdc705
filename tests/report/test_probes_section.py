"""The report's table of probes: counts by phase, and the detail of what did not hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gameday.history.events import ProbeAnswered
from gameday.report.sections.probes import build
from tests.report.run_builder import Timed, at, history_of, passing


def answer(second: float, holds: bool | None, detail: str) -> Timed:
    return Timed(
        second,
        ProbeAnswered(probe="p", asks="http", holds=holds, detail=detail, asked_at=at(second), at=at(second)),
    )


def rows(*timed: Timed) -> Any:
    run: Any = SimpleNamespace(history=history_of([*passing(), *timed]))
    return build(run).rows


def test_answers_are_counted_by_phase_and_what_did_not_hold_is_named() -> None:
    (row,) = rows(
        answer(0, True, "status 200"),
        answer(12, True, "status 200"),
        answer(13, False, "status 503"),
        answer(14, None, "no series"),
        answer(15, True, "status 200"),
        answer(500, True, "back"),
    )
    assert (row.before.held, row.before.failed, row.before.detail) == (1, 0, "status 200")
    assert (row.during.held, row.during.failed, row.during.unread, row.during.detail) == (2, 1, 1, "no series")
    assert (row.after.held, row.after.detail) == (1, "back")


def test_without_probes_there_is_no_row() -> None:
    assert rows() == ()
