"""The pods of a load must all get a node, in time, and no GPU may be given out twice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from gameday.checks.facts import at_most, seconds_text, stop_reason, target_nodes
from gameday.checks.verdict import Status, Verdict, containment_verdict
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday_control_plane.events import PodStepsLogged
from gameday_control_plane.expect.scheduling import ExpectedScheduling, Scheduling
from gameday_control_plane.values.pod_steps import PodStep, ZonesPlaced

ORDER = 65


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    expected = Scheduling.of(plan.expect).scheduling
    return [one for node in target_nodes(history) for one in _of(expected, history, node)] if expected else []


def _of(expected: ExpectedScheduling, history: History, node: str | None) -> list[Verdict]:
    logged = next((event for _, event in reversed(history.about(PodStepsLogged, node))), None)
    placed = logged.placed if logged else None
    steps = logged.steps if logged else ()
    all_bound = placed.bound == placed.wanted if placed else None
    most = placed.most_on_a_node if placed else 0
    twice = placed.devices_given_twice if placed else 0
    refused = placed.refused if placed else 0
    whole = most <= expected.gpus_per_node and twice == 0 and refused == 0 if placed else None
    absent = f"the load's log was not read: {stop_reason(history)}"
    found = f"{placed.bound} of {placed.wanted}" if placed else ""
    shared = f"{most} on one node, {twice} devices twice, {refused} pods refused" if placed else ""
    given = f"≤ {expected.gpus_per_node} a node"
    return [
        _verdict("pods-placed", "Every pod of the load gets a node", "all", found, all_bound, node, absent),
        _verdict("gpus-given-once", "No GPU is given to two pods", given, shared, whole, node, absent),
        *_zones(placed.zones if placed else None, node),
        _latency("scheduling-latency", "of each step", expected.p99_within, _steps(steps, churn=False), node, absent),
        *(
            [_latency("churn-latency", "in churn", churn, _steps(steps, churn=True), node, absent)]
            if (churn := expected.churn_within)
            else []
        ),
    ]


def _steps(steps: Sequence[PodStep], *, churn: bool) -> list[PodStep]:
    return [step for step in steps if bool(step.deleted) is churn]


def _latency(
    check: str, which: str, within: timedelta, steps: Sequence[PodStep], node: str | None, absent: str
) -> Verdict:
    worst = max((step.p99_s for step in steps if step.p99_s is not None), default=None)
    in_time = worst <= within.total_seconds() if worst is not None else None
    text, measured = f"99 of 100 pods {which} wait for a node", "" if worst is None else seconds_text(worst)
    return _verdict(check, text, at_most(within), measured, in_time, node, absent, worst)


def _zones(zones: ZonesPlaced | None, node: str | None) -> list[Verdict]:
    """Return the verdict on the zones, which only a load of topology-aware pods has."""
    if zones is None:
        return []
    # An object that lags behind its pods says nothing about them.
    held = False if zones.overcommitted else None if zones.behind or not zones.zones else True
    lag = f"the objects of {zones.behind} nodes have fewer GPUs in use than there are pods"
    measured = f"{zones.overcommitted} of {zones.zones} zones, {zones.behind} nodes behind their pods"
    expectation = "No NUMA zone has more GPUs in use than it has"
    why = lag if zones.behind else "no NodeResourceTopology object has a zone with GPUs"
    return [_verdict("zones-not-overcommitted", expectation, "none", measured, held, node, why)]


def _verdict(
    check: str,
    expectation: str,
    bound: str,
    measured: str,
    held: bool | None,
    node: str | None,
    absent: str,
    seconds: float | None = None,
) -> Verdict:
    """Return the verdict; `absent` says why nothing is known if `held` is None."""
    status = {True: Status.HELD, False: Status.BROKEN, None: Status.UNKNOWN}[held]
    return containment_verdict(
        check, expectation, bound, measured, status, absent if held is None else "", node, seconds
    )
