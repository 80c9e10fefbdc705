"""The cluster must take every hop of its own repair in time, if the plan leaves the repair to it."""

from __future__ import annotations

from datetime import timedelta

from gameday.checks.facts import at_most, judge_absence, seconds_text, stop_reason, target_nodes, why_times_mislead
from gameday.checks.verdict import Status, Verdict
from gameday.documents.fields import format_duration
from gameday.history.events import (
    FaultInjected,
    NodeReplaced,
    Record,
    RepairChainEnded,
    RepairHopSeen,
    SignalUnwatched,
)
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.plan.repair_chain import ExpectedHop
from gameday.values.results import RepairHop, Step

ORDER = 25
"""A place before the alerts, so that a run's first broken verdict names the hop at which the cluster stopped."""

_EXPECTATIONS = {
    RepairHop.QUARANTINED: "The cluster takes {node} out of service",
    RepairHop.WORK_MOVED: "The GPU pods of before the fault leave {node}",
    RepairHop.REPAIR_BEGUN: "The cluster begins to repair {node}",
    RepairHop.REPAIRED: "The cluster repairs {node}",
    RepairHop.READY: "The repaired {node} is Ready with all its GPUs",
    RepairHop.VALIDATED: "The cluster validates {node}",
    RepairHop.RETURNED: "The cluster gives {node} back to work",
}
_STAYS_OUT = "The cluster keeps {node} out of service"

Seen = tuple[Record, RepairHopSeen]


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    if not plan.recover.is_hands_off:
        return []
    return [
        _of(plan, history, node, hop, expected)
        for node in target_nodes(history)
        for hop, expected in plan.recover.hops.expected()
    ]


def hops_seen(history: History, node: str | None) -> dict[RepairHop, Seen]:
    """Return the newest record of each hop that the cluster took, in the order it took them."""
    return {seen.hop: (record, seen) for record, seen in history.about(RepairHopSeen, node)}


def chain_end(history: History, node: str | None) -> tuple[Record, RepairChainEnded] | None:
    """Return the end of the wait for the cluster; None if the run ended before it."""
    return next(iter(reversed(history.about(RepairChainEnded, node))), None)


def _of(plan: Plan, history: History, node: str | None, hop: RepairHop, expected: ExpectedHop) -> Verdict:
    stays_out = hop is RepairHop.RETURNED and not plan.recover.gives_node_back
    seen, end = hops_seen(history, node), chain_end(history, node)
    status, why = _judge(history, node, hop, expected, stays_out=stays_out)
    found = seen.get(hop)
    name = node or "the target"
    records = [
        *([found[0]] if found else []),
        *([end[0]] if end and (stays_out or end[1].stopped_at is hop) else []),
        *(record for record, _ in history.about(NodeReplaced, node) if hop is RepairHop.REPAIRED),
        *(record for record, _ in history.about(FaultInjected, node)[:1]),
    ]
    sentence = (_STAYS_OUT if stays_out else _EXPECTATIONS[hop]).format(node=name)
    return Verdict(
        check=f"repair-{hop.value.replace(' ', '-')}",
        expectation=f"{sentence} (hop ‘{hop}’)",
        bound=f"for {seconds_text(expected.within.total_seconds())}" if stays_out else at_most(expected.within),
        measured=_measured(found[1]) if found else "",
        status=status,
        step=Step.RECOVER,
        why=why,
        seconds=found[1].took_s if found else None,
        evidence=tuple(record.seq for record in records),
        node=node,
    )


def _judge(
    history: History, node: str | None, hop: RepairHop, expected: ExpectedHop, *, stays_out: bool
) -> tuple[Status, str]:
    found, end = hops_seen(history, node).get(hop), chain_end(history, node)
    if not history.about(FaultInjected, node):
        return Status.UNKNOWN, f"not reached: {stop_reason(history)}"
    if found and stays_out:
        return Status.BROKEN, f"{found[1].by} gave it back {seconds_text(found[1].took_s)} after ‘{found[1].since}’"
    if found:
        return _in_time(history, found[1], expected.within)
    if end is None:
        return judge_absence(history, Step.RECOVER, f"the hop ‘{hop}’")
    return _without_hop(history, end[1], hop, expected, stays_out=stays_out)


def _without_hop(
    history: History, end: RepairChainEnded, hop: RepairHop, expected: ExpectedHop, *, stays_out: bool
) -> tuple[Status, str]:
    """Judge a hop that the cluster did not take although the game-day waited to the end."""
    if hop in end.missed:
        stopped = f"; the cluster stopped at the hop ‘{end.stopped_at}’" if end.stopped_at else ""
        return Status.BROKEN, f"not within {format_duration(expected.within)}{stopped}"
    if end.stopped_at is None:
        return (Status.HELD, "") if stays_out else (Status.UNKNOWN, "the chain ended without this hop")
    if end.stopped_at is not hop:
        return Status.UNKNOWN, f"not reached: the cluster stopped at the hop ‘{end.stopped_at}’"
    if stays_out:
        return Status.BROKEN, end.why
    if blind := _unwatched(history, end.node, expected):
        return Status.UNKNOWN, f"its signs could not be watched: {blind}"
    left = f"; the cluster left {', '.join(end.left)}" if end.left else ""
    return Status.BROKEN, f"the cluster stopped here: {end.why}{left}"


def _in_time(history: History, seen: RepairHopSeen, within: timedelta) -> tuple[Status, str]:
    if why := why_times_mislead(history):
        return Status.UNKNOWN, why
    over = seen.took_s - within.total_seconds()
    return (Status.BROKEN, f"{seconds_text(over)} too late after ‘{seen.since}’") if over > 0 else (Status.HELD, "")


def _unwatched(history: History, node: str | None, expected: ExpectedHop) -> str:
    """Return why signs of a hop could not be seen; empty if all of them could."""
    signals = {"events"} if any(sign.event for sign in expected.signs) else set()
    signals |= {"custom resources"} if any(sign.resource for sign in expected.signs) else set()
    return "; ".join(seen.why for _, seen in history.about(SignalUnwatched, node) if seen.signal in signals)


def _measured(seen: RepairHopSeen) -> str:
    kind = f"{seen.repair}, " if seen.repair else ""
    return f"{seconds_text(seen.took_s)} after ‘{seen.since}’; {kind}by {seen.by}"
