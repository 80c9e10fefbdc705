"""Facts that both the checks and the report take from a history: targets, times, reasons for gaps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from gameday.checks.verdict import Status
from gameday.history.events import (
    Aborted,
    AlertSeen,
    FaultInjected,
    FaultUndone,
    IntentRecorded,
    NodeReplaced,
    NodeReturned,
    Problem,
    PrometheusFellBehind,
    Record,
    Refused,
    Remediated,
    RepairChainEnded,
    RepairHopSeen,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    TargetsChosen,
)
from gameday.history.journal import History
from gameday.values.dated import CLOCK_TOLERANCE_S, Dated
from gameday.values.nodes import NodeRole, Target
from gameday.values.results import RepairHop, Step, StepOutcome


def seconds_text(seconds: float) -> str:
    """Return a duration as every page writes it: `0.31 s`, `4.2 s`, `2 min 05 s`, `1 h 02 min`."""
    if 0.005 <= abs(seconds) < 0.995:
        return f"{seconds:.2f} s"
    if abs(seconds) < 120 or not math.isfinite(seconds):  # a history that somebody edited may hold an infinity
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def at_most(bound: timedelta) -> str:
    seconds = bound.total_seconds()
    return f"≤ {seconds:g} s" if seconds < 120 else f"≤ {seconds_text(seconds)}"


def targets(history: History) -> tuple[Target, ...]:
    chosen = history.last(TargetsChosen)
    return chosen.targets if chosen else ()


def target_nodes(history: History) -> tuple[str | None, ...]:
    """Return the target nodes; one None if the run ended before it chose any, so that each expectation is judged."""
    return tuple(dict.fromkeys(target.node for target in targets(history))) or (None,)


def breaks_gpu_nodes(history: History) -> bool:
    """Return False if the fault leaves its nodes whole, because only its clients run there."""
    started = history.first(RunStarted)
    return started is None or started.role is NodeRole.GPU


def in_place_of(history: History, node: str | None) -> str | None:
    """Return the node that took a target's place; the target itself if none did."""
    replaced = history.about(NodeReplaced, node)
    return replaced[-1][1].successor if replaced else node


def repair_stop(history: History, node: str | None) -> str:
    """Return the hop at which the cluster's own repair stopped, in words; empty if it did not stop."""
    ended = [event for _, event in history.about(RepairChainEnded, node)]
    if not ended or ended[-1].stopped_at is None:
        return ""
    left = f"; it left {', '.join(ended[-1].left)}" if ended[-1].left else ""
    return f"the cluster stopped at the hop '{ended[-1].stopped_at}'{left}"


def first_fault(history: History, node: str | None) -> tuple[Record, FaultInjected] | None:
    """Return the first fault that went into the node, with its record."""
    return next(iter(history.about(FaultInjected, node)), None)


def unnamed_alerts(history: History) -> tuple[list[tuple[Record, AlertSeen]], list[tuple[Record, AlertSeen]]]:
    """Return the alerts that fired and that the plan does not name: the fault's own, and all others.

    An alert may be the fault's if it names a target or no node, and its condition began after the first fault was
    written.
    """
    nodes = {None, *target_nodes(history)}
    written = min((fault.written_at for fault in history.of(FaultInjected)), default=None)
    ours: list[tuple[Record, AlertSeen]] = []
    background: list[tuple[Record, AlertSeen]] = []
    for record, seen in history.with_times(AlertSeen):
        if seen.state != "firing" or seen.expected or seen.at_baseline:
            continue
        early = written is None or (seen.since or seen.at) < written - timedelta(seconds=CLOCK_TOLERANCE_S)
        (background if early or seen.background or seen.node not in nodes else ours).append((record, seen))
    return ours, background


def remediation_end(history: History, node: str | None) -> Record | None:
    """Return the record of the remediation, or of the fault's undo if the plan remediates nothing.

    Of a node that the cluster repaired: the record of the hop *ready*, else of *repaired*.
    """
    remediated = [record for record, _ in history.about(Remediated, node)]
    hops = {seen.hop: record for record, seen in reversed(history.about(RepairHopSeen, node))}
    repaired = next((hops[hop] for hop in (RepairHop.READY, RepairHop.REPAIRED) if hop in hops), None)
    if repaired is not None:
        return repaired
    faults = {event.intent for _, event in history.about(FaultInjected, node)}
    undone = [record for record, event in history.with_times(FaultUndone) if event.intent in faults]
    ends = remediated or undone
    return ends[-1] if ends else None


def node_return(history: History, node: str | None) -> Record | None:
    """Return the record of the node's return to service; None if it was not returned."""
    returned = [record for record, _ in history.about(NodeReturned, node)]
    return returned[-1] if returned else None


def not_yet(history: History, where: str) -> str:
    """Return why a history without an end lacks something: the run is still running, or was cut off at `where`."""
    return "the run is still running" if history.is_running else f"the run was cut off {where}"


def stop_reason(history: History) -> str:
    """Return why the run went no further, in the words of what stopped it."""
    if refused := history.last(Refused):
        return f"the run was refused: {refused.why}"
    if aborted := history.last(Aborted):
        return f"aborted by {aborted.by}: {aborted.why}"
    for ended in history.of(StepEnded):
        if ended.outcome not in (StepOutcome.DONE, StepOutcome.NOT_REACHED, StepOutcome.NOT_ASKED):
            return f"{ended.step} ended {ended.outcome}" + (f": {ended.why}" if ended.why else "")
    return "the step did not run" if history.last(RunEnded) else not_yet(history, "before this step")


def steps_left_out(history: History) -> dict[Step, str]:
    """Return the steps that the run's flow leaves out, each with the reason."""
    return {one.step: one.why for one in history.of(StepEnded) if one.outcome is StepOutcome.NOT_ASKED}


_DOING = {
    Step.BASELINE: "looked at the steady state",
    Step.INJECT: "put the fault in",
    Step.AWAIT_ALERT: "waited for the alert",
    Step.VERIFY_TAINT: "looked at the node's taints and pods",
    Step.RECOVER: "recovered the node",
    Step.QA_NODE: "tested the node",
}


def judge_absence(history: History, step: Step, what: str) -> tuple[Status, str]:
    """Return the verdict, and why, on a `step` that left no record of `what`.

    It is broken only if the step ran to its end and could read its sources; a step that was not reached, was cut off
    or could not see proves nothing.
    """
    ended = next((e for e in reversed(history.of(StepEnded)) if e.step == step), None)
    if ended is None:
        if any(started.step == step for started in history.of(StepStarted)):
            return Status.UNKNOWN, not_yet(history, f"during '{step}', before {what}")
        return Status.UNKNOWN, f"not reached: {stop_reason(history)}"
    if ended.outcome in (StepOutcome.NOT_REACHED, StepOutcome.NOT_ASKED):
        return Status.UNKNOWN, f"{ended.outcome}: {ended.why or stop_reason(history)}"
    if ended.outcome in (StepOutcome.UNKNOWN, StepOutcome.ABORTED):
        return Status.UNKNOWN, f"'{step}' ended {ended.outcome}" + (f": {ended.why}" if ended.why else "")
    if problem := next((p for p in history.of(Problem) if p.step == step), None):
        return Status.UNKNOWN, f"could not be observed: {problem.what}"
    return Status.BROKEN, f"not seen while the run {_DOING[step]}"


def why_alerts_may_be_missing(history: History) -> str:
    """Return why alerts may not have been seen, with the remedy; empty if Prometheus and the run's clock kept up."""
    behind = history.last(PrometheusFellBehind)
    return f"Prometheus did not keep up: {behind.why}; {behind.hint}" if behind else why_times_mislead(history)


def why_times_mislead(history: History) -> str:
    """Return why the times of a history cannot be compared with each other; empty if they can."""
    if (set_by_s := history.clock_set_by_s) > CLOCK_TOLERANCE_S:
        return f"the machine that played the run slept, or its clock was set, for {seconds_text(set_by_s)} meanwhile"
    intended = {intent.intent: record.at for record, intent in history.with_times(IntentRecorded)}
    for record, fault in history.with_times(FaultInjected):
        since = intended.get(fault.intent)
        early_s = (since - fault.written_at).total_seconds() if since else 0.0
        late_s = (fault.written_at - record.at).total_seconds() if since else 0.0
        if max(early_s, late_s) > CLOCK_TOLERANCE_S:
            when = "before it was ordered" if early_s > late_s else "after it was seen"
            by = seconds_text(max(early_s, late_s))
            return f"clocks disagree: by the clock of {fault.target.node} the fault went in {by} {when}"
    return ""


def judge_across_clocks(
    history: History, start: datetime, end: datetime, bound: timedelta, dated: Dated | None = None
) -> tuple[Status, float, str]:
    """Judge a duration that depends on the run's own clock; UNKNOWN if that clock was set meanwhile."""
    status, seconds, why = judge_duration(start, end, bound, dated)
    if misled := why_times_mislead(history):
        return Status.UNKNOWN, seconds, misled
    return status, seconds, why


def judge_duration(
    start: datetime, end: datetime, bound: timedelta, dated: Dated | None = None
) -> tuple[Status, float, str]:
    """Return the status, the seconds (never below 0) and why.

    `end` is the latest moment at which it can have come: if that is within the bound, the status is HELD. Else it is
    BROKEN if the earliest moment, by `dated`, is beyond the bound as well, and UNKNOWN if not. It is UNKNOWN, too, if
    the clocks plainly disagree.
    """
    seconds = (end - start).total_seconds()
    if seconds < -CLOCK_TOLERANCE_S:
        return Status.UNKNOWN, 0.0, f"clocks disagree: seen {seconds_text(-seconds)} before its cause"
    seconds = max(seconds, 0.0)
    over = seconds - bound.total_seconds()
    if over <= 0:
        return Status.HELD, seconds, ""
    if dated and dated.earliest <= start + bound:
        first = seconds_text(max(0.0, (dated.earliest - start).total_seconds()))
        why = f"it came between {first} and {seconds_text(seconds)} after, and the bound lies between"
        return Status.UNKNOWN, seconds, "; ".join(filter(None, (why, clocks_apart(dated))))
    return Status.BROKEN, seconds, f"{seconds_text(over)} too late"


def clocks_apart(dated: Dated) -> str:
    """Return how the source's clock contradicts what the run saw; empty if it does not."""
    if dated.ahead_s:
        return f"by the clock of its source it came {seconds_text(dated.ahead_s)} after it was seen"
    if dated.behind_s:
        return f"by the clock of its source it came {seconds_text(dated.behind_s)} before a look that did not show it"
    return ""


def dated_text(dated: Dated | None, start: datetime) -> str:
    """Return what dated a signal, how exactly, and when it was seen after `start`; empty if only the sight dates it."""
    if dated is None or dated.own is None:
        return ""
    if apart := clocks_apart(dated):
        return f"as seen: {apart}"
    if dated.open_s and dated.latest == dated.seen_at:
        return f"as seen; its own time agrees, to {seconds_text(dated.open_s)}"
    error = f", ± {seconds_text(dated.every_s)} evaluation" if dated.every_s else ""
    error += f", to {seconds_text(dated.open_s)}" if dated.open_s else ""
    early_s = (start - dated.latest).total_seconds()
    error += f", by its clock {seconds_text(early_s)} before its cause" if early_s > 0 else ""
    return f"{dated.source}{error}; seen at {seconds_text(max(0.0, (dated.seen_at - start).total_seconds()))}"


def first_few(phrases: Sequence[str], most: int = 3) -> str:
    """Return the first few phrases as one, with the number of the others: a verdict's why is a sentence, not a list."""
    rest = len(phrases) - most
    return "; ".join(phrases[:most]) + (f"; and {rest} more" if rest > 0 else "")


def worst_status(statuses: Iterable[bool | None]) -> Status:
    """Return the worst status: broken before unknown before held; raises ValueError for no status."""
    seen = list(statuses)
    if not seen:
        raise ValueError("nothing to judge")
    if False in seen:
        return Status.BROKEN
    return Status.UNKNOWN if None in seen else Status.HELD
