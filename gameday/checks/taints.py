"""The taints the plan names must be on the target node, with exactly their value and effect, in time."""

from __future__ import annotations

from gameday.checks.facts import absence, at_most, bounded, injected, seconds_text, stopped_because, target_nodes
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import Step, Taint, TaintSeen
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import ExpectedTaint, Plan

ORDER = 50


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    return [_set(taint, history, node) for taint in plan.expect.taints for node in target_nodes(history)]


def _set(expected: ExpectedTaint, history: History, node: str | None) -> Verdict:
    wanted = Taint(key=expected.key, value=expected.value, effect=str(expected.effect))
    fault = injected(history, node)
    same_key = [
        (record, seen)
        for record, seen in history.about(TaintSeen, node)
        if seen.present and seen.taint.key == expected.key
    ]
    exact = [(record, seen) for record, seen in same_key if seen.taint == wanted]
    status, why, seconds = Status.UNKNOWN, "", None
    if fault is None:
        why = f"not reached: {stopped_because(history)}"
    elif exact:
        status, seconds, why = bounded(fault[1].written_at, exact[0][1].at, expected.within)
    elif same_key:
        status, why = Status.BROKEN, f"the node carries {same_key[0][1].taint} instead"
    else:
        status, why = absence(history, Step.VERIFY_TAINT, f"the taint on {node}")
    return Verdict(
        check="taint-set",
        expectation=f"Taint {wanted} is put on {node or 'the target'}",
        bound=at_most(expected.within),
        measured="" if seconds is None else seconds_text(seconds),
        status=status,
        why=why,
        seconds=seconds,
        evidence=tuple(record.seq for record, _ in (exact or same_key)[:1]) + ((fault[0].seq,) if fault else ()),
        node=node,
    )
