"""A run as one OpenTelemetry trace: steps, detection chains, fault window and undos, in OTLP's JSON encoding.

Names and limits of the encoding: docs/sources.md, OTLP traces. Times and
values come from the stored history alone, and ids from the run's id, so that
a second export makes the same trace again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gameday.checks.facts import not_yet
from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.history.events import FaultInjected, Record, RunStarted, StepEnded, StepStarted
from gameday.report.run_folder import RunFolder
from gameday.report.safe_text import LONGEST, cut, visible
from gameday.report.sections.chain import Chain, HopRow
from gameday.report.sections.chain import build as chains_of
from gameday.report.sections.undo import UndoRow
from gameday.report.sections.undo import build as undo_proof
from gameday.text import without_secrets
from gameday.values.results import Cleanliness, Step, StepOutcome

SERVICE = "gpu-gameday"
"""The trace's `service.name`."""
MOST_VALUES = 20
"""Texts of one list; a last one counts the others, so that a run of 500 nodes stays a small request."""

_INTERNAL, _ERROR = 1, 2  # SPAN_KIND_INTERNAL, STATUS_CODE_ERROR
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_NS = 2**63 - 1  # the year 2262: receivers keep these times as signed integers of 64 bits

Value = str | int | float | Sequence[str] | None


@dataclass(frozen=True)
class Span:
    """A stretch of a run. `key` is unique in the run and makes its id; `error` None means no error."""

    key: tuple[str, ...]
    name: str
    start: datetime
    end: datetime
    attributes: tuple[tuple[str, Value], ...] = ()
    error: str | None = None
    children: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Trace:
    """A run's spans under one root."""

    started: RunStarted
    root: Span

    @property
    def trace_id(self) -> str:
        """The trace's id, 32 hexadecimal digits."""
        return _digest(self.started.run_id, ("trace",), 16)

    def request(self) -> dict[str, Any]:
        """Return the body of `POST /v1/traces`: an ExportTraceServiceRequest in OTLP's JSON encoding."""
        started = self.started
        resource = (
            ("service.name", SERVICE),
            ("service.version", started.gameday_version),
            ("k8s.cluster.name", started.cluster_name or started.cluster),
            ("k8s.cluster.uid", started.cluster_uid),
        )
        scope = {"scope": {"name": SERVICE}, "spans": list(self._spans(self.root, ""))}
        return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]}

    def _spans(self, span: Span, parent_id: str) -> Iterator[dict[str, Any]]:
        span_id = _digest(self.started.run_id, span.key, 8)
        yield {
            "traceId": self.trace_id,
            "spanId": span_id,
            **({"parentSpanId": parent_id} if parent_id else {}),
            "name": _text(span.name),
            "kind": _INTERNAL,
            "startTimeUnixNano": _nanoseconds(span.start),
            "endTimeUnixNano": _nanoseconds(span.end),
            "attributes": _attributes(span.attributes),
            "status": {} if span.error is None else {"code": _ERROR, "message": _text(span.error)},
        }
        for child in span.children:
            yield from self._spans(child, span_id)


def trace_of(run: RunFolder) -> Trace | None:
    """Return the run's trace; None for a history without a start, which does not say which run it is."""
    started, result = run.started, run.result
    if started is None:
        return None
    red = result.outcome is not RunOutcome.PASSED or result.cleanliness is not Cleanliness.CLEAN
    root = Span(
        key=("run",),
        name=f"game-day {started.plan_name}",
        start=min(record.at for record in run.history.records),
        end=max(record.at for record in run.history.records),
        attributes=(
            ("gameday.run.id", started.run_id),
            ("gameday.plan", started.plan_name),
            ("gameday.title", run.plan.title if run.plan else None),
            ("gameday.fault", run.plan.fault.type if run.plan else None),
            ("gameday.cluster", started.cluster_name or started.cluster),
            ("gameday.targets", run.target_names),
            ("gameday.virtual-gpus", "yes" if run.is_virtual else "no"),
            ("gameday.trigger", started.trigger),
            ("gameday.outcome", result.outcome),
            ("gameday.cleanliness", result.cleanliness),
            ("gameday.why", result.why),
            ("gameday.broken", _expectations(run, Status.BROKEN)),
            ("gameday.unknown", _expectations(run, Status.UNKNOWN)),
            ("gameday.version", started.gameday_version),
        ),
        error=(result.why or f"{result.outcome}, {result.cleanliness}") if red else None,
        children=(*_steps(run), *_fault_window(run), *_detections(run), *_undos(run)),
    )
    return Trace(started, _around(root))


def _expectations(run: RunFolder, status: Status) -> list[str]:
    return [f"{one.expectation}: {one.why or one.measured}" for one in run.verdicts if one.status is status]


def _steps(run: RunFolder) -> Iterator[Span]:
    """Return a span for each step that began; one that never ended goes on to the last record."""
    for step in Step:
        started = _first(run, StepStarted, step)
        if started is None or not isinstance(started.event, StepStarted):
            continue
        record = _first(run, StepEnded, step)
        ended = record.event if record and isinstance(record.event, StepEnded) else None
        end = (record or run.history.records[-1]).at
        fine = ended is not None and ended.outcome in (StepOutcome.DONE, StepOutcome.NOT_ASKED)
        why = (ended.why or f"the step ended {ended.outcome}") if ended else not_yet(run.history, "in this step")
        yield Span(
            key=("step", step),
            name=step,
            start=started.at,
            end=max(started.at, end),
            attributes=(
                ("gameday.step.outcome", ended.outcome if ended else "cut off"),
                ("gameday.step.deadline_s", started.event.deadline_s),
            ),
            error=None if fine else why,
        )


def _first(run: RunFolder, kind: type[StepStarted] | type[StepEnded], step: Step) -> Record | None:
    return next((record for record, event in run.history.with_times(kind) if event.step == step), None)


def _fault_window(run: RunFolder) -> Iterator[Span]:
    """Return the window from the first fault written to the last undone, as the report draws it."""
    window = run.fault_window()
    if window is None or run.zero is None:
        return
    faults = run.history.of(FaultInjected)
    start, end = (run.zero + timedelta(seconds=offset_s) for offset_s in window)
    yield Span(
        key=("fault window",),
        name="fault window",
        start=start,
        end=max(start, end),
        attributes=(
            ("gameday.fault", tuple(dict.fromkeys(fault.fault for fault in faults))),
            ("gameday.fault.layer", tuple(dict.fromkeys(fault.layer for fault in faults))),
            ("gameday.targets", tuple(dict.fromkeys(fault.target.node for fault in faults))),
            ("gameday.fault.evidence", tuple(line for fault in faults for line in fault.evidence)),
        ),
    )


def _detections(run: RunFolder) -> Iterator[Span]:
    """Return a span for each target's detection chain, with its hops; none for a target without any hop."""
    for chain in chains_of(run).chains:
        hops = tuple(_hop(chain, row, row.at) for row in chain.rows if row.at)
        if not hops:
            continue
        breaks = [f"{one.missed}: no '{one.before}' after '{one.after}'" for one in chain.breaks]
        yield _around(
            Span(
                key=("detection", chain.node or ""),
                name="detection",
                start=hops[0].start,
                end=hops[0].end,
                attributes=(("k8s.node.name", chain.node), ("gameday.detection.slowest_hop", chain.slowest)),
                error="; ".join(breaks) or None,
                children=hops,
            )
        )


def _hop(chain: Chain, row: HopRow, at: datetime) -> Span:
    """Return the hop's span, from its cause to itself; of no length where no cause of it was seen."""
    length = timedelta(seconds=(row.end_s or 0.0) - (row.start_s or 0.0))
    return Span(
        key=("hop", chain.node or "", row.hop),
        name=row.hop,
        start=at - max(length, timedelta()),
        end=at,
        attributes=(
            ("k8s.node.name", chain.node),
            ("gameday.hop.since", row.since),
            ("gameday.hop.source", row.source),
        ),
    )


def _undos(run: RunFolder) -> Iterator[Span]:
    """Return a span for each change's undo, of no length: a history knows only when one was proved.

    An undo that is on no record is an error at the last record.
    """
    rows = {row.intent: row for row in undo_proof(run).rows}
    for row in rows.values():
        at = row.undone_at or run.history.records[-1].at
        yield Span(
            key=("undo", row.intent),
            name="undo",
            start=at,
            end=at,
            attributes=(
                ("gameday.undo.act", row.act),
                ("gameday.undo.undo", row.undo),
                ("gameday.undo.object", row.object),
                ("gameday.undo.announced", row.announced_at.isoformat() if row.announced_at else None),
                ("gameday.undo.by", row.by),
                ("gameday.undo.attempts", row.attempts),
                ("gameday.undo.evidence", row.evidence),
                ("gameday.cleanliness", row.cleanliness),
            ),
            error=_undo_error(row),
        )


def _undo_error(row: UndoRow) -> str | None:
    if row.undone_at is None:
        return "no undo of this is on record"
    return None if row.cleanliness is Cleanliness.CLEAN else f"reading back says {row.cleanliness}"


def _around(span: Span) -> Span:
    """Widen the span to its children: a hop is dated by the clock of its own source."""
    start = min((child.start for child in span.children), default=span.start)
    end = max((child.end for child in span.children), default=span.end)
    return replace(span, start=min(span.start, start), end=max(span.end, end))


def _digest(run_id: str, key: Iterable[str], size: int) -> str:
    return hashlib.sha256("\0".join((run_id, *key)).encode("utf-8", "replace")).hexdigest()[: 2 * size]


def _nanoseconds(at: datetime) -> str:
    return str(max(0, min((at - _EPOCH) // timedelta(microseconds=1) * 1000, _LATEST_NS)))


def _attributes(pairs: Iterable[tuple[str, Value]]) -> list[dict[str, Any]]:
    """Return the pairs as KeyValues; what is not known or empty has none."""
    return [{"key": key, "value": _value(value)} for key, value in pairs if value not in (None, "", (), [])]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case str():
            return {"stringValue": _text(value)}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    texts = list(value or ())
    more = [f"and {len(texts) - MOST_VALUES} more"] if len(texts) > MOST_VALUES else []
    return {"arrayValue": {"values": [{"stringValue": _text(text)} for text in texts[:MOST_VALUES] + more]}}


def _text(value: str) -> str:
    """Make text from outside safe to send: no credential, no control character, no half of a surrogate pair, cut."""
    return visible(cut(without_secrets(value), LONGEST)).encode("utf-8", "replace").decode()
