"""All pods of the plan's gang must land on nodes of the class `fast`."""

from __future__ import annotations

from collections import Counter

from gameday.checks.facts import at_most, first_few, judge_absence
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import GangPlaced
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.gpu_class import GpuClass
from gameday.values.results import Step

ORDER = 66


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    wanted = plan.expect.placement
    if wanted is None:
        return []
    found = list(history.with_times(GangPlaced))
    if found:
        status, why = judge_gang(found[-1][1])
    else:
        _, why = judge_absence(history, Step.VERIFY_TAINT, "the gang's pods")
        status = Status.UNKNOWN
    return [
        Verdict(
            check="placement",
            expectation=f"Each of a gang of {wanted.pods} pods lands on a node of the class {GpuClass.FAST}",
            bound=f"all, {at_most(wanted.placed_within)}",
            measured=_measured(found[-1][1]) if found else "",
            status=status,
            step=Step.VERIFY_TAINT,
            why=why,
            evidence=tuple(record.seq for record, _ in found[-1:]),
        )
    ]


def judge_gang(placed: GangPlaced) -> tuple[Status, str]:
    """Return the verdict on a gang, and why it does not hold.

    A pod on another node breaks it, and so does one that the scheduler has not looked at in time. If the scheduler
    found no node at all for a pod, nothing is proved, because a preference keeps no pod off a node.
    """
    elsewhere = [
        f"{pod.pod} is on {pod.node}, {_class_in_words(pod.gpu_class)}"
        for pod in placed.pods
        if pod.node and pod.gpu_class != GpuClass.FAST
    ]
    forgotten = [f"{pod.pod} has no node" for pod in placed.pods if not (pod.node or pod.unschedulable)]
    if elsewhere or forgotten:
        return Status.BROKEN, first_few([*elsewhere, *forgotten])
    if without := [f"{pod.pod}: {pod.unschedulable}" for pod in placed.pods if not pod.node]:
        return Status.UNKNOWN, first_few(without)
    if not placed.pods:
        return Status.UNKNOWN, placed.why_not_sent or "no gang was sent"
    return Status.HELD, ""


def _class_in_words(gpu_class: str) -> str:
    return f"class {gpu_class}" if gpu_class else "without a class"


def _measured(placed: GangPlaced) -> str:
    places = Counter(_class_in_words(pod.gpu_class) if pod.node else "without a node" for pod in placed.pods)
    return ", ".join(f"{count} {where}" for where, count in sorted(places.items()))
