"""The plan nearest to an incident: the game-day that would have caught it. Plans and runs are given."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from gameday.history.events import AlertSeen, KernelLineSeen
from gameday.plan.models import Plan
from gameday.report.summary import Summary
from gameday.xid.catalogue import sxids, xids


class MatchingPlan(BaseModel):
    """The nearest plan; None if no plan comes near, and then `why` says what one would have to break.

    `last` is None if it was never run here. `elsewhere`: that run was on another cluster, so its result proves nothing
    for the incident's.
    """

    model_config = ConfigDict(frozen=True)

    plan: str | None
    title: str = ""
    why: str
    command: str
    last: Summary | None = None
    elsewhere: bool = False


def find_matching_plan(
    line: KernelLineSeen | None,
    alerts: Sequence[AlertSeen],
    plans: Sequence[Plan],
    runs: Sequence[Summary],
    cluster_id: str,
) -> MatchingPlan:
    """Find the plan by the first fatal line's code, else by NVIDIA's action for it, else by the alert.

    Its last result is the one on the incident's own cluster, or another's if there is none. A plan with arms compares
    what another plan would have caught, and is skipped.
    """
    plans = [plan for plan in plans if plan.arms is None]
    for plan, why in (*_by_code(line, plans), *_by_action(line, plans), *_by_alert(alerts, plans)):
        of_plan = sorted((run for run in runs if run.plan == plan.name), key=lambda run: run.started)
        here = [run for run in of_plan if run.cluster_id == cluster_id]
        return MatchingPlan(
            plan=plan.name,
            title=plan.title,
            why=why,
            command=f"gameday rehearse {plan.name}",
            last=next(iter((here or of_plan)[-1:]), None),
            elsewhere=bool(of_plan) and not here,
        )
    if line is None or line.code is None:
        why = "no line and no alert of this window names a fault that a shipped plan puts in"
        return MatchingPlan(plan=None, why=why, command="gameday plans")
    why = f"no plan writes {_named(line.family)} {line.code}: copy one and set its code, and run it with"
    return MatchingPlan(plan=None, why=why, command="gameday run my-plan.yaml")


def _by_code(line: KernelLineSeen | None, plans: Sequence[Plan]) -> list[tuple[Plan, str]]:
    if line is None or line.code is None:
        return []
    name = f"{_named(line.family)} {line.code}"
    return [
        (plan, f"it writes exactly this, {name}") for plan in _first(plans) if _code(plan) == (line.family, line.code)
    ]


def _by_action(line: KernelLineSeen | None, plans: Sequence[Plan]) -> list[tuple[Plan, str]]:
    """Return plans with another code of the same family and the same action, which exercise the same chain."""
    answer = _answer(line.family, line.code) if line and line.code is not None else None
    if line is None or answer is None:
        return []
    same = [(plan, found[1]) for plan in _first(plans) if (found := _code(plan)) and found[0] == line.family]
    alike = [(plan, code) for plan, code in same if _answer(line.family, code) == answer]
    name = _named(line.family)
    return [
        (
            plan,
            f"no plan writes {name} {line.code}; it writes {name} {code}, which the catalogue answers alike ({answer})",
        )
        for plan, code in sorted(alike, key=lambda pair: abs(pair[1] - (line.code or 0)))
    ]


def _by_alert(alerts: Sequence[AlertSeen], plans: Sequence[Plan]) -> list[tuple[Plan, str]]:
    fired = [alert.alert for alert in alerts if alert.state == "firing"]
    return [
        (plan, f"it expects the alert that fired, {expected.name}")
        for name in dict.fromkeys(fired)
        for plan in _first(plans)
        for expected in plan.expect.alerts
        if expected.name == name
    ]


def _first(plans: Sequence[Plan]) -> list[Plan]:
    """Sort the plans: faults of the kernel log first, like the incident's line, and of these the plainest."""

    def order(plan: Plan) -> tuple[bool, int, str]:
        set_by_hand = [*plan.fault.model_dump(exclude_defaults=True), *plan.recover.model_dump(exclude_defaults=True)]
        return plan.fault.type not in ("xid", "sxid"), len(set_by_hand), plan.name

    return sorted(plans, key=order)


def _code(plan: Plan) -> tuple[str, int] | None:
    """Return the code that a plan's fault shows, by whichever layer it enters."""
    fault = plan.fault.model_dump()
    for family in ("xid", "sxid"):
        if isinstance(fault.get(family), int):
            return family, fault[family]
    return None


def _answer(family: str, code: int) -> str | None:
    if family == "xid" and code in xids():
        return str(xids()[code].immediate) or None
    return str(sxids()[code].fatal) if family == "sxid" and code in sxids() else None


def _named(family: str) -> str:
    return {"xid": "Xid", "sxid": "SXid"}.get(family, family)
