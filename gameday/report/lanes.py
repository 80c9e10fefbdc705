"""The run as lanes on one time axis: the fault, what noticed it, what the nodes showed, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pydantic import BaseModel

from gameday.checks.verdict import Status
from gameday.history.events import (
    AlertSeen,
    AllocatableSeen,
    ConditionSeen,
    FaultInjected,
    FaultUndone,
    Remediated,
    RepairHopSeen,
    StepEnded,
    StepStarted,
    TaintSeen,
)
from gameday.report.noticed import signal_verdicts
from gameday.report.run_folder import RunFolder
from gameday.report.ticks import Tick, time_ticks
from gameday.values.nodes import NODE_LIFECYCLE_DOMAIN
from gameday.values.results import Step

MOST_LANES = 60
"""Lanes of one run; a cluster-wide upset belongs into the tables."""


class Bar(BaseModel):
    """A stretch from `start_s` to `end_s` after T+0; `open` if no end is on record."""

    start_s: float
    end_s: float
    tone: str
    open: bool = False


class Lane(BaseModel):
    """A signal, with the stretches in which it was present."""

    label: str
    detail: str
    bars: tuple[Bar, ...]
    bound_s: float | None = None
    """The latest moment at which it had to come, seconds after T+0; None if the plan sets none."""
    missed: bool = False
    """True for a signal that had to come and did not: its bar is where it could have begun."""


class Lanes(BaseModel):
    """All lanes; the axis runs from `first_s` to `last_s`, seconds since T+0."""

    first_s: float
    last_s: float
    ticks: tuple[Tick, ...]
    lanes: tuple[Lane, ...]
    left_out: int = 0


def story_lanes(run: RunFolder) -> Lanes:
    """Return the few lanes that show the run: the fault, what had to notice it, every quarantine, repair, QA."""
    expected = [alert for alert in run.history.of(AlertSeen) if alert.expected and not alert.at_baseline]
    taints = [seen for seen in run.history.of(TaintSeen) if not seen.taint.key.startswith(NODE_LIFECYCLE_DOMAIN)]
    lanes = [*_faults(run), *_alerts(run, expected), *_taints(run, taints), *_missed(run)]
    lanes += [*_remediations(run), *_hops(run), *_qa(run)]
    begin = min((0.0, *(bar.start_s for lane in lanes for bar in lane.bars)))
    end = max((bar.end_s for lane in lanes for bar in lane.bars), default=0.0)
    return _on_axis(lanes, begin - 0.06 * (end - begin), end)


def signal_lanes(run: RunFolder) -> Lanes:
    """Return every signal that came or changed on a target, or fired anywhere, over the whole run."""
    alerts = [alert for alert in run.history.of(AlertSeen) if not alert.at_baseline]
    lanes = [*_faults(run), *_alerts(run, alerts), *_taints(run, run.history.of(TaintSeen))]
    lanes += [*_conditions(run), *_allocatable(run), *_hops(run)]
    offsets = [run.offset_s(record.at) for record in run.history.records] or [0.0]
    return _on_axis(lanes, min(offsets), max(offsets))


def _on_axis(lanes: list[Lane], first_s: float, last_s: float) -> Lanes:
    drawn = [lane for lane in lanes if lane.bars]
    last_s = max(last_s, first_s + 0.001)
    return Lanes(
        first_s=first_s,
        last_s=last_s,
        ticks=tuple(time_ticks(first_s, last_s)),
        lanes=tuple(_with_bound_on_axis(lane, last_s) for lane in drawn[:MOST_LANES]),
        left_out=max(0, len(drawn) - MOST_LANES),
    )


def _with_bound_on_axis(lane: Lane, last_s: float) -> Lane:
    """Return the lane without a bound past the end of the axis, where a mark would show another moment."""
    return lane if lane.bound_s is None or lane.bound_s <= last_s else lane.model_copy(update={"bound_s": None})


def _last_s(run: RunFolder) -> float:
    """Return the last moment at which the run itself watched; what a reaper noted later is not a sighting."""
    records = run.history.records
    return max((run.offset_s(record.at) for record in records if record.boot == records[0].boot), default=0.0)


def _faults(run: RunFolder) -> list[Lane]:
    lanes = []
    undone = {event.intent: record.at for record, event in run.history.with_times(FaultUndone)}
    for fault in run.history.of(FaultInjected):
        end = undone.get(fault.intent)
        start_s, end_s = run.offset_s(fault.written_at), run.offset_s(end) if end else _last_s(run)
        bar = Bar(start_s=start_s, end_s=max(end_s, start_s), tone="fault", open=end is None)
        lanes.append(Lane(label=f"Fault {fault.fault} in", detail=str(fault.target), bars=(bar,)))
    return lanes


def _alerts(run: RunFolder, seen: Iterable[AlertSeen]) -> list[Lane]:
    """Return a lane for each label set: an alert that fires for two GPUs may resolve for only one."""
    lives: dict[str, list[AlertSeen]] = defaultdict(list)
    for alert in seen:
        lives[alert.label_set].append(alert)
    apart = distinguishing_labels([life[0] for life in lives.values()])
    bounds = {alert.name: alert.within.total_seconds() for alert in run.plan.expect.alerts} if run.plan else {}
    lanes = []
    for life in lives.values():
        tones = {"pending": "pending", "firing": "alert"}
        changes = [(run.offset_s(alert.at), tones.get(alert.state)) for alert in life]
        detail = ", ".join(filter(None, (life[0].node or "no node", apart[life[0].label_set])))
        bars = _spans(changes, _last_s(run))
        bound_s = bounds.get(life[0].alert) if life[0].expected else None
        lanes.append(Lane(label=f"Alert {life[0].alert}", detail=detail, bars=bars, bound_s=bound_s))
    return lanes


def _missed(run: RunFolder) -> list[Lane]:
    """Return a lane for each signal that the cluster had to give and did not."""
    return [
        Lane(
            label=verdict.expectation,
            detail="never came",
            bars=(Bar(start_s=0.0, end_s=verdict.within_s, tone="missed"),),
            bound_s=verdict.within_s,
            missed=True,
        )
        for verdict in signal_verdicts(run)
        if verdict.status is Status.BROKEN and verdict.seconds is None and verdict.within_s
    ]


def distinguishing_labels(alerts: Sequence[AlertSeen]) -> dict[str, str]:
    """Map each label set to the labels that differ from others of the same alert and node."""
    alike: dict[tuple[str, str | None], dict[str, dict[str, str]]] = defaultdict(dict)
    for alert in alerts:
        alike[alert.alert, alert.node][alert.label_set] = alert.labels
    named = {}
    for group in alike.values():
        names = sorted({name for labels in group.values() for name in labels})
        differing = [name for name in names if len({labels.get(name) for labels in group.values()}) > 1]
        for label_set, labels in group.items():
            named[label_set] = ", ".join(f"{name}={labels[name]}" for name in differing if name in labels)
    return named


def _taints(run: RunFolder, seen: Iterable[TaintSeen]) -> list[Lane]:
    by_taint: dict[tuple[str, str, str], list[tuple[float, str | None]]] = defaultdict(list)
    for event in seen:
        tone = "quiet" if event.taint.key.startswith(NODE_LIFECYCLE_DOMAIN) else "taint"
        key = (event.taint.key, str(event.taint), event.node)
        by_taint[key].append((run.offset_s(event.at), tone if event.present else None))
    bounds = {taint.key: taint.within.total_seconds() for taint in run.plan.expect.taints} if run.plan else {}
    return [
        Lane(
            label=f"Taint {key.rpartition('/')[2]}",
            detail=f"{taint} on {node}",
            bars=_spans(changes, _last_s(run)),
            bound_s=bounds.get(key),
        )
        for (key, taint, node), changes in by_taint.items()
    ]


def _conditions(run: RunFolder) -> list[Lane]:
    """Return a lane for Ready while it is not True, and for every other condition while it is."""
    by_condition: dict[tuple[str, str], list[tuple[float, str | None]]] = defaultdict(list)
    for event in run.history.of(ConditionSeen):
        wrong = event.status not in (None, "True" if event.condition == "Ready" else "False")
        by_condition[event.condition, event.node].append((run.offset_s(event.at), "condition" if wrong else None))
    return [
        Lane(
            label="Not Ready" if name == "Ready" else f"Condition {name}",
            detail=node,
            bars=_spans(changes, _last_s(run)),
        )
        for (name, node), changes in by_condition.items()
    ]


def _allocatable(run: RunFolder) -> list[Lane]:
    """Return a lane per node for the time in which it offers fewer GPUs than at first."""
    by_node: dict[str, list[AllocatableSeen]] = defaultdict(list)
    for event in run.history.of(AllocatableSeen):
        by_node[event.node].append(event)
    lanes = []
    for node, events in by_node.items():
        usual = events[0].before or 0
        changes = [(run.offset_s(e.at), "condition" if (e.gpus or 0) < usual else None) for e in events]
        lanes.append(Lane(label=f"Fewer than {usual} GPUs offered", detail=node, bars=_spans(changes, _last_s(run))))
    return lanes


def _remediations(run: RunFolder) -> list[Lane]:
    lanes = []
    for record, event in run.history.with_times(Remediated):
        end_s = run.offset_s(record.at)
        bar = Bar(start_s=end_s - event.seconds, end_s=end_s, tone="good" if event.ok else "bad")
        lanes.append(Lane(label=f"Repair: {event.action}", detail=event.node, bars=(bar,)))
    return lanes


def _hops(run: RunFolder) -> list[Lane]:
    """Return a lane for each hop of a cluster's own repair, from the hop before it to its own moment."""
    newest = {(event.node, event.hop): event for event in run.history.of(RepairHopSeen)}
    lanes = []
    for event in newest.values():
        end_s = run.offset_s(event.at)
        bar = Bar(start_s=end_s - event.took_s, end_s=end_s, tone="good")
        lanes.append(Lane(label=f"Repair chain: {event.hop}", detail=f"{event.node}, by {event.by}", bars=(bar,)))
    return lanes


def _qa(run: RunFolder) -> list[Lane]:
    start = next((r for r, e in run.history.with_times(StepStarted) if e.step == Step.QA_NODE), None)
    if start is None:
        return []
    end = next(((r, e) for r, e in run.history.with_times(StepEnded) if e.step == Step.QA_NODE), None)
    start_s, end_s = run.offset_s(start.at), run.offset_s(end[0].at) if end else _last_s(run)
    tone = "quiet" if end is None else "good" if end[1].outcome == "done" else "bad"
    bar = Bar(start_s=start_s, end_s=max(start_s, end_s), tone=tone, open=end is None)
    return [Lane(label="QA and return", detail=", ".join(run.target_names), bars=(bar,))]


def _spans(changes: list[tuple[float, str | None]], last_s: float) -> tuple[Bar, ...]:
    """Return bars from (instant, tone from then on; None: nothing) in any order; the last one stays open."""
    ordered = sorted(changes, key=lambda change: change[0])
    bars: list[Bar] = []
    for place, (at_s, tone) in enumerate(ordered):
        if tone is None:
            continue
        ended = place + 1 < len(ordered)
        end_s = ordered[place + 1][0] if ended else max(last_s, at_s)
        repeated = bars and bars[-1].tone == tone and bars[-1].end_s == at_s  # said again without a change
        start_s = bars.pop().start_s if repeated else at_s
        bars.append(Bar(start_s=start_s, end_s=end_s, tone=tone, open=not ended))
    return tuple(bars)
