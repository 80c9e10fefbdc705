"""A run as one OpenTelemetry trace: steps, fault window, detection chains and undos.

Times and values come from the stored history, and ids from the run's id, so that a second export makes the same trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import count

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Status as SpanStatus
from opentelemetry.trace import StatusCode, set_span_in_context

from gameday.checks.facts import not_yet
from gameday.checks.verdict import Status
from gameday.history.events import FaultInjected, RunStarted, StepEnded, StepStarted
from gameday.report.run_folder import RunFolder
from gameday.report.safe_text import LONGEST, cut, visible
from gameday.report.sections import chain, undo
from gameday.report.summarise import summarise
from gameday.report.summary import Summary
from gameday.text import without_secrets
from gameday.values.results import Cleanliness, Step, StepOutcome

SERVICE = "gpu-gameday"
"""The trace's `service.name`."""
MOST_VALUES = 20
"""Texts of one list; a last one counts the others, so that a run of 500 nodes stays a small request."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_NS = 2**63 - 1  # the year 2262: receivers keep these times as signed integers of 64 bits

Value = str | int | float | Sequence[str] | None


class _Ids(IdGenerator):
    """Ids that follow from the run's id and the order of its spans."""

    def __init__(self, run_id: str) -> None:
        self._run_id, self._spans = run_id, count()

    def generate_trace_id(self) -> int:
        return self._id("trace", 16)

    def generate_span_id(self) -> int:
        return self._id(f"span {next(self._spans)}", 8)

    def _id(self, name: str, size: int) -> int:
        return int.from_bytes(sha256(f"{self._run_id} {name}".encode("utf-8", "replace")).digest()[:size])


class _Trace:
    """The spans of a run, as they are added."""

    def __init__(self, started: RunStarted) -> None:
        about = {
            "service.name": SERVICE,
            "service.version": started.gameday_version,
            "k8s.cluster.name": started.cluster_name or started.cluster,
            "k8s.cluster.uid": started.cluster_uid,
        }
        # The environment's resource and sampler are those of our own process, not of this run.
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource(_attributes(about)),
            shutdown_on_exit=False,
            id_generator=_Ids(started.run_id),
        )
        self._added = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._added))
        self._tracer = provider.get_tracer(SERVICE)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._added.get_finished_spans()

    def add(
        self,
        name: str,
        start: datetime,
        end: datetime,
        attributes: Mapping[str, Value],
        error: str | None = None,
        parent: Context | None = None,
    ) -> Context:
        """Add a span, with an error where `error` is text; return the context that makes it a parent."""
        span = self._tracer.start_span(
            _text(name),
            parent or Context(),
            attributes=_attributes(attributes),
            start_time=_nanoseconds(start),
        )
        if error is not None:
            span.set_status(SpanStatus(StatusCode.ERROR, _text(error)))
        span.end(_nanoseconds(max(start, end)))
        return set_span_in_context(span, Context())


def trace_of(run: RunFolder) -> Sequence[ReadableSpan]:
    """Return the run's spans, the root first; none for a history without a start, which names no run."""
    summary = summarise(run)
    if run.started is None or summary is None:
        return ()
    trace = _Trace(run.started)
    root = _add_root(trace, run, summary)
    _add_steps(trace, root, run)
    _add_fault_window(trace, root, run)
    for one in chain.build(run).chains:
        _add_detection(trace, root, one)
    for row in undo.build(run).rows:
        _add_undo(trace, root, row, run.history.records[-1].at)
    return trace.spans


def _add_root(trace: _Trace, run: RunFolder, summary: Summary) -> Context:
    times = [record.at for record in run.history.records]
    about = {
        "gameday.run.id": summary.run_id,
        "gameday.plan": summary.plan,
        "gameday.title": summary.title,
        "gameday.fault": summary.fault,
        "gameday.cluster": summary.cluster,
        "gameday.targets": summary.targets,
        "gameday.virtual-gpus": "yes" if summary.rehearsal else "no",
        "gameday.outcome": summary.outcome,
        "gameday.cleanliness": summary.cleanliness,
        "gameday.why": summary.why,
        "gameday.broken": _expectations(run, Status.BROKEN),
        "gameday.unknown": _expectations(run, Status.UNKNOWN),
    }
    error = summary.why if summary.exit_code else None
    return trace.add(f"game-day {summary.plan}", min(times), max(times), about, error)


def _expectations(run: RunFolder, status: Status) -> list[str]:
    return [f"{one.expectation}: {one.why or one.measured}" for one in run.verdicts if one.status is status]


def _add_steps(trace: _Trace, root: Context, run: RunFolder) -> None:
    """Add a span for each step that began; one that never ended goes on to the last record."""
    started = {event.step: (record, event) for record, event in run.history.with_times(StepStarted)}
    ended = {event.step: (record, event) for record, event in run.history.with_times(StepEnded)}
    for step in Step:
        if step not in started:
            continue
        record, event = started[step]
        last, end = ended.get(step, (run.history.records[-1], None))
        error = None
        if end is None:
            error = not_yet(run.history, "in this step")
        elif end.outcome not in (StepOutcome.DONE, StepOutcome.NOT_ASKED):
            error = end.why or f"the step ended {end.outcome}"
        outcome = end.outcome if end else "cut off"
        about = {"gameday.step.outcome": outcome, "gameday.step.deadline_s": event.deadline_s}
        trace.add(step, record.at, last.at, about, error, root)


def _add_fault_window(trace: _Trace, root: Context, run: RunFolder) -> None:
    """Add the window from the first fault written to the last undone, as the report draws it."""
    window = run.fault_window()
    if window is None or run.zero is None:
        return
    faults = run.history.of(FaultInjected)
    start, end = (run.zero + timedelta(seconds=offset_s) for offset_s in window)
    about = {
        "gameday.fault": tuple(dict.fromkeys(fault.fault for fault in faults)),
        "gameday.fault.layer": tuple(dict.fromkeys(fault.layer for fault in faults)),
        "gameday.targets": tuple(dict.fromkeys(fault.target.node for fault in faults)),
        "gameday.fault.evidence": tuple(line for fault in faults for line in fault.evidence),
    }
    trace.add("fault window", start, end, about, parent=root)


def _add_detection(trace: _Trace, root: Context, one: chain.Chain) -> None:
    """Add a target's detection chain with its hops, each from its cause to itself; none where no hop was seen."""
    hops = [(row, row.at - _length(row), row.at) for row in one.rows if row.at]
    if not hops:
        return
    breaks = [f"{it.missed}: no '{it.before}' after '{it.after}'" for it in one.breaks]
    detection = trace.add(
        "detection",
        min(start for _, start, _ in hops),
        max(end for _, _, end in hops),
        {"k8s.node.name": one.node, "gameday.detection.slowest_hop": one.slowest},
        "; ".join(breaks) or None,
        root,
    )
    for row, start, end in hops:
        about = {"k8s.node.name": one.node, "gameday.hop.since": row.since, "gameday.hop.source": row.source}
        trace.add(row.hop, start, end, about, parent=detection)


def _length(row: chain.HopRow) -> timedelta:
    """Return how long the hop took; nothing where no cause of it was seen."""
    return timedelta(seconds=max(0.0, (row.end_s or 0.0) - (row.start_s or 0.0)))


def _add_undo(trace: _Trace, root: Context, row: undo.UndoRow, last: datetime) -> None:
    """Add a change's undo, of no length: a history knows only when it was proved. A missing one is an error."""
    error = None if row.cleanliness is Cleanliness.CLEAN else f"reading back says {row.cleanliness}"
    about = {
        "gameday.undo.act": row.act,
        "gameday.undo.undo": row.undo,
        "gameday.undo.object": row.object,
        "gameday.undo.announced": row.announced_at.isoformat() if row.announced_at else None,
        "gameday.undo.by": row.by,
        "gameday.undo.attempts": row.attempts,
        "gameday.undo.evidence": row.evidence,
        "gameday.cleanliness": row.cleanliness,
    }
    at = row.undone_at or last
    trace.add("undo", at, at, about, error if row.undone_at else "no undo of this is on record", root)


def _nanoseconds(at: datetime) -> int:
    return max(0, min((at - _EPOCH) // timedelta(microseconds=1) * 1000, _LATEST_NS))


def _attributes(values: Mapping[str, Value]) -> dict[str, str | int | float | list[str]]:
    """Return the attributes as they are sent: without what is not known or empty, and every text safe."""
    sent: dict[str, str | int | float | list[str]] = {}
    for name, value in values.items():
        if isinstance(value, int | float):
            sent[name] = value
        elif isinstance(value, str):
            sent[name] = _text(value)
        elif value:
            more = [f"and {len(value) - MOST_VALUES} more"] if len(value) > MOST_VALUES else []
            sent[name] = [_text(text) for text in (*value[:MOST_VALUES], *more)]
    return {name: value for name, value in sent.items() if value != ""}


def _text(value: str) -> str:
    """Make text from outside safe to send: no credential, no control character, cut."""
    return visible(cut(without_secrets(value), LONGEST))
