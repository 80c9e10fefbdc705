"""What conditions, labels, Events, cordons and GPU counts have in common: they arrive in time, and go in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gameday.checks.facts import (
    CLOCK_TOLERANCE_S,
    absence,
    at_most,
    bounded,
    injected,
    remediation_end,
    seconds_text,
    stopped_because,
)
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import Record, Step
from gameday.history.journal import History


@dataclass(frozen=True)
class Sighting:
    record: Record
    at: datetime
    what: str = ""
    """What was seen, where it is not what was expected."""


def as_expected(seen: Sequence[Sighting]) -> list[Sighting]:
    return [one for one in seen if not one.what]


def since_fault(history: History, node: str | None, seen: Sequence[Sighting]) -> list[Sighting]:
    """Without what was there before the fault went in, by whatever clock dated it."""
    fault = injected(history, node)
    begin = fault[1].written_at - timedelta(seconds=CLOCK_TOLERANCE_S) if fault else None
    return [one for one in seen if begin and one.at >= begin]


def arrives(
    history: History,
    node: str | None,
    check: str,
    expectation: str,
    within: timedelta,
    sightings: Sequence[Sighting],
) -> Verdict:
    """Whether the first that is as expected came within the bound; what is not tells what came in its place."""
    fault = injected(history, node)
    seen, instead = as_expected(sightings), [one for one in sightings if one.what]
    status, why, seconds = Status.UNKNOWN, "", None
    if fault is None:
        why = f"not reached: {stopped_because(history)}"
    elif seen:
        status, seconds, why = bounded(fault[1].written_at, seen[0].at, within)
    elif instead:
        status, why = Status.BROKEN, f"{instead[0].what} instead"
    else:
        status, why = absence(history, Step.VERIFY_TAINT, "it was seen")
    records = [*(one.record for one in (*seen, *instead)[:1]), *([fault[0]] if fault else [])]
    return _verdict(node, check, expectation, within, status, seconds, why, records)


def goes(
    history: History,
    node: str | None,
    check: str,
    expectation: str,
    within: timedelta,
    came: Sequence[Sighting],
    gone: Sequence[Sighting],
) -> Verdict:
    """Whether it went for good within the bound after remediation; a sighting that a later one takes back is no end."""
    start = remediation_end(history, node)
    ended = [one for one in gone if came and one.at >= came[-1].at]
    status, why, seconds = Status.UNKNOWN, "", None
    if not came:
        why = "not reached: it was not seen coming"
    elif start is None:
        why = f"not reached: {stopped_because(history)}"
    elif ended:
        status, seconds, why = bounded(start.at, max(ended[0].at, start.at), within)
        why = "went before remediation had ended" if ended[0].at < start.at else why
    else:
        status, why = absence(history, Step.RECOVER, "it went")
    records = [*(one.record for one in ended[:1]), *([start] if start else [])]
    return _verdict(node, check, expectation, within, status, seconds, why, records)


def _verdict(
    node: str | None,
    check: str,
    expectation: str,
    within: timedelta,
    status: Status,
    seconds: float | None,
    why: str,
    records: Sequence[Record],
) -> Verdict:
    return Verdict(
        check=check,
        expectation=expectation,
        bound=at_most(within),
        measured="" if seconds is None else seconds_text(seconds),
        status=status,
        why=why,
        seconds=seconds,
        evidence=tuple(record.seq for record in records),
        node=node,
    )
