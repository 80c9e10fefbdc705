"""Pods in steps: their waits, the schedulers' own latency, memory, and the writes that each pod cost."""

from __future__ import annotations

from collections.abc import Iterator

from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.report.figure import Figure
from gameday_control_plane.checks.pod_steps import load_cost, step_costs
from gameday_control_plane.events import PodStepsLogged

_MIB = 2**20


def figures(plan: Plan, history: History, frames: Frames) -> list[Figure]:
    logged = history.last(PodStepsLogged)
    return [*_of_load(logged, frames), *_of_last_step(logged, frames)] if logged else []


def _of_load(logged: PodStepsLogged, frames: Frames) -> Iterator[Figure]:
    cost = load_cost(logged, frames)
    if cost is None:
        return
    yield Figure(name="pods: bound", unit="", value=float(cost.bound))
    added, churned = ([step for step in logged.steps if bool(step.deleted) is churn] for churn in (False, True))
    took_s = sum(step.took_s for step in added)
    if took_s > 0:
        yield Figure(name="pods: bound in a second", unit="", value=sum(step.bound for step in added) / took_s)
    for steps, name in ((added, "99th percentile of the slowest step"), (churned, "99th percentile in churn")):
        waits = [step.p99_s for step in steps if step.p99_s is not None]
        if waits:
            yield Figure(name=f"pods: wait for a node, {name}", unit="s", value=max(waits))
    for name, value in (("median", cost.p50_s), ("99th percentile", cost.p99_s)):
        if value is not None:
            yield Figure(name=f"schedulers: scheduling SLI, {name}", unit="s", value=value)
    if cost.writes:
        yield Figure(name="API writes per pod", unit="", value=sum(cost.writes.values()))
    for resource, count in sorted(cost.writes.items()):
        yield Figure(name=f"API writes per pod: {resource}", unit="", value=count)
    for resource, count in sorted(cost.reads.items()):
        yield Figure(name=f"API reads per pod: {resource}", unit="", value=count)


def _of_last_step(logged: PodStepsLogged, frames: Frames) -> Iterator[Figure]:
    for cost in step_costs(logged, frames)[-1:]:
        if cost.schedulers is not None:
            yield Figure(name="schedulers: memory in the last step", unit="MiB", value=cost.schedulers / _MIB)
        if cost.api_server is not None:
            yield Figure(name="API server: memory in the last step", unit="MiB", value=cost.api_server / _MIB)
