"""No alert may have a severity that the plan forbids, even if the plan allows other alerts."""

from __future__ import annotations

from gameday.checks.facts import judge_absence, target_nodes, unnamed_alerts, why_alerts_may_be_missing
from gameday.checks.verdict import Status, Verdict
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step

ORDER = 35


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    forbidden = plan.expect.forbidden_severities
    return [_none_of(forbidden, history, node) for node in target_nodes(history)] if forbidden else []


def _none_of(forbidden: tuple[str, ...], history: History, node: str | None) -> Verdict:
    fired = [
        (record, seen)
        for record, seen in unnamed_alerts(history)[0]
        if seen.node == node and seen.labels.get("severity") in forbidden
    ]
    status, why = Status.BROKEN, ", ".join(sorted({seen.alert for _, seen in fired}))
    if not fired:
        status, why = judge_absence(history, Step.AWAIT_ALERT, "the window's end")
        if status is Status.BROKEN:  # the step could see alerts and saw none, as the plan expects
            missing = why_alerts_may_be_missing(history)
            status, why = (Status.UNKNOWN, missing) if missing else (Status.HELD, "")
    return Verdict(
        check="forbidden-severities",
        expectation=f"No alert of severity {' or '.join(forbidden)} fires for {node or 'the target'} unnamed",
        bound="0 alerts",
        measured="" if status is Status.UNKNOWN else f"{len(fired)} alert{'' if len(fired) == 1 else 's'}",
        status=status,
        step=Step.AWAIT_ALERT,
        why=why,
        evidence=tuple(record.seq for record, _ in fired),
        node=node,
    )
