"""The acts of people and programs in order of time, and the six steps side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import BaseModel

from gameday.checks.fault_state import FaultState, fault_state
from gameday.history.events import (
    FaultInjected,
    FaultUndone,
    QaChecked,
    Record,
    RecoveryDisturbed,
    StepEnded,
    StepStarted,
)
from gameday.report.lanes import Lanes, signal_lanes
from gameday.report.narration import CLEANLINESS_TONE, narrate
from gameday.report.run_folder import RunFolder
from gameday.report.ticks import Tick, time_ticks
from gameday.text import without_secrets
from gameday.values.results import Cleanliness, Step, StepOutcome

ORDER = 60
TITLE = "Timeline"
GROUP = "Fault and signals"

MOST_ROWS = 400
"""Rows shown. A longer run is cut in the middle, where a row says so; history.jsonl has all of them."""


class TimelineRow(BaseModel):
    """`seq` is the record's in history.jsonl; None for a person's note."""

    seq: int | None
    at: datetime
    offset_s: float
    until_s: float | None = None
    """The latest moment that a stamp of whole seconds allows, in seconds since T+0; None for a finer stamp."""
    actor: str
    text: str
    tone: str


class StepBar(BaseModel):
    step: str
    outcome: str
    why: str
    start_s: float | None
    end_s: float | None
    deadline_s: float | None


class Timeline(BaseModel):
    zero: datetime | None
    went_in: FaultState
    """T+0 is the moment of the first fault if one went in, else the first record."""
    first_s: float
    last_s: float
    ticks: tuple[Tick, ...]
    fault_s: tuple[float, float] | None
    """The fault window, seconds since T+0; to the last record if no undo is on record."""
    steps: tuple[StepBar, ...]
    signals: Lanes
    lines: tuple[TimelineRow, ...]
    left_out: int


def build(run: RunFolder) -> Timeline:
    records, shown = run.history.records, _shown(run)
    people = _cut(_in_order(run, _noted(run)))
    offsets = [run.offset_s(record.at) for record in records] or [0.0]
    return Timeline(
        zero=run.zero,
        went_in=fault_state(run.history),
        first_s=min(offsets),
        last_s=max(offsets),
        ticks=tuple(time_ticks(min(offsets), max(*offsets, min(offsets) + 0.001))),
        fault_s=run.fault_window(),
        steps=tuple(_bar(run, step) for step in Step),
        signals=signal_lanes(run),
        lines=tuple(_in_order(run, [*shown.lines, *people.lines])),
        left_out=shown.left_out + people.left_out,
    )


def shown_records(run: RunFolder) -> frozenset[int]:
    """Return the records that have a row, by `seq`, so that links to them lead somewhere."""
    return frozenset(line.seq for line in _shown(run).lines if line.seq is not None)


def _shown(run: RunFolder) -> _Cut:
    told: dict[tuple[datetime, str, str], TimelineRow] = {}
    for line in (line for record in run.history.records if (line := _line(run, record))):
        # An alert is noted again once Alertmanager has named its receivers.
        told.setdefault((line.at, line.actor, line.text), line)
    return _cut(_in_order(run, [*told.values(), *_undo_lines(run), *_qa_lines(run)]))


def _in_order(run: RunFolder, lines: Iterable[TimelineRow]) -> list[TimelineRow]:
    """Return the rows by time; one with a stamp of whole seconds comes after the last fault that may be its cause."""
    went_in = [event.written_at for event in run.history.of(FaultInjected)]
    went_in += [event.written_at for event in run.history.of(RecoveryDisturbed) if event.written_at]
    faults = [run.offset_s(at) for at in went_in]

    def place(line: TimelineRow) -> tuple[float, bool, int]:
        causes = [fault for fault in faults if line.until_s is not None and line.offset_s <= fault < line.until_s]
        return max(causes, default=line.offset_s), bool(causes), -1 if line.seq is None else line.seq

    return sorted(lines, key=place)


@dataclass(frozen=True)
class _Cut:
    lines: list[TimelineRow]
    left_out: int


def _cut(lines: list[TimelineRow]) -> _Cut:
    """Keep only both ends of a list that is too long."""
    head, tail = MOST_ROWS // 2, MOST_ROWS - MOST_ROWS // 2
    shown = lines if len(lines) <= MOST_ROWS else [*lines[:head], *lines[-tail:]]
    return _Cut(shown, len(lines) - len(shown))


def _noted(run: RunFolder) -> Iterator[TimelineRow]:
    """Yield people's notes, cut separately, so that a long run does not lose them."""
    for moment in run.notes.moments():
        offset_s, who = run.offset_s(moment.at), moment.who or "somebody"
        yield TimelineRow(seq=None, at=moment.at, offset_s=offset_s, actor=who, text=moment.what, tone="human")


def _line(run: RunFolder, record: Record) -> TimelineRow | None:
    said = narrate(record.event)
    if said is None:
        return None
    at = said.at or record.at
    # It happened before it was written down, at any point of its second.
    latest = min(at + timedelta(seconds=1), max(at, record.at)) if said.whole_second else None
    return TimelineRow(
        seq=record.seq,
        at=at,
        offset_s=run.offset_s(at),
        until_s=run.offset_s(latest) if latest else None,
        actor=said.actor,
        text=without_secrets(said.text),
        tone=said.tone,
    )


def _undo_lines(run: RunFolder) -> Iterator[TimelineRow]:
    """Yield a line per fault that came out, and per change that was not undone; the undo proof has all of them."""
    faults = {event.intent: event.fault for event in run.history.of(FaultInjected)}
    faults |= {event.intent: event.fault for event in run.history.of(RecoveryDisturbed)}
    for record, event in run.history.with_times(FaultUndone):
        fault, clean = faults.get(event.intent), event.cleanliness is Cleanliness.CLEAN
        if clean and not fault:
            continue
        what = f"Fault {fault} out" if clean else f"Undo of fault {fault}" if fault else "Undo of a change"
        where = f" of {event.node}" if clean and event.node else f" on {event.node}" if event.node else ""
        tries = f", {event.attempts} attempts" if event.attempts > 1 else ""
        yield TimelineRow(
            seq=record.seq,
            at=record.at,
            offset_s=run.offset_s(record.at),
            actor=event.by,
            text=f"{what}{where}, read back {event.cleanliness}{tries}",
            tone=CLEANLINESS_TONE[event.cleanliness],
        )


def _qa_lines(run: RunFolder) -> list[TimelineRow]:
    """Return a line per node for its many QA results, at the time of the last one."""
    results: dict[str, list[tuple[Record, QaChecked]]] = {}
    for record, event in run.history.with_times(QaChecked):
        results.setdefault(event.node, []).append((record, event))
    lines = []
    for node, rows in results.items():
        count = Counter(event.ok for _, event in rows)
        last = rows[-1][0]
        text = f"QA of {node}: {count[True]} of {len(rows)} checks passed"
        text += f", {count[False]} failed" if count[False] else ""
        text += f", {count[None]} not measured" if count[None] else ""
        tone = "bad" if count[False] else "doubt" if count[None] else "good"
        lines.append(
            TimelineRow(seq=last.seq, at=last.at, offset_s=run.offset_s(last.at), actor="agent", text=text, tone=tone)
        )
    return lines


def _bar(run: RunFolder, step: Step) -> StepBar:
    start = next(((r, e) for r, e in run.history.with_times(StepStarted) if e.step == step), None)
    end = next(((r, e) for r, e in run.history.with_times(StepEnded) if e.step == step), None)
    cut_off = "running" if run.history.is_running else "cut off"
    outcome = end[1].outcome if end else (cut_off if start else StepOutcome.NOT_REACHED)
    finish = end[0] if end else run.history.records[-1] if start else None
    return StepBar(
        step=step,
        outcome=outcome,
        why=end[1].why if end else "",
        start_s=run.offset_s(start[0].at) if start else None,
        end_s=run.offset_s(finish.at) if start and finish else None,
        deadline_s=start[1].deadline_s if start else None,
    )
