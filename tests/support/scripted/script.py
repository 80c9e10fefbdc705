"""A script: when the cluster does what no line of ours decides. Its defaults make a healthy one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gameday.agent.task import QaResult
from gameday.plan.models import Plan
from gameday.values.nodes import Taint
from gameday.values.results import Cleanliness

Times = tuple[float, ...]
"""Seconds after the fault is in: none, where a thing never happens; several, where it happens again and again."""


@dataclass(frozen=True)
class AgentScript:
    """What becomes of a pod, an agent's or any other."""

    starts_s: float = 0.3
    """From its creation, or its binding, to its running."""
    works_s: float = 0.2
    """From there to what it was sent for: its result, or the fault."""
    undoes_s: float = 0.2
    """From SIGTERM, its deadline or the end of its hold to its end."""
    error: str = ""
    """It fails with these words."""
    cleanliness: Cleanliness = Cleanliness.CLEAN
    """What it reads back at its end; the fault is out where it is clean."""
    is_killed: bool = False
    """It ends without a word, and what it put in stays in."""
    finds: tuple[QaResult, ...] = (QaResult(check="gpu-count", gpu=None, value=8, bound="8", ok=True, seconds=0.1),)
    """What QA finds."""


@dataclass(frozen=True)
class Away:
    """A server that does not answer for a time, in seconds of the clock."""

    server: str
    since_s: float
    until_s: float


@dataclass(frozen=True)
class NodeChange:
    """A change of the struck node by somebody who is no game-day: a detector, a repairer, a person."""

    patch: Mapping[str, Any]
    """A strategic merge patch."""
    after_s: float = 0.2
    when: Literal["in", "out", "repaired", "back"] = "in"
    """Counted from: the fault is in; the last one is out; its repair has ended; it is in service again."""
    is_status: bool = False
    by: str = "scripted-detector"

    @classmethod
    def condition(cls, kind: str, status: str, reason: str = "Scripted", **when: Any) -> NodeChange:
        """Return a condition's change."""
        condition = {"type": kind, "status": status, "reason": reason}
        return cls({"status": {"conditions": [condition]}}, is_status=True, **when)

    @classmethod
    def label(cls, key: str, value: str | None, **when: Any) -> NodeChange:
        """Return a label's change; None takes it away."""
        return cls({"metadata": {"labels": {key: value}}}, **when)


@dataclass(frozen=True)
class NodeEvent:
    """A Kubernetes Event about the struck node."""

    reason: str
    type: str = "Warning"
    after_s: float = 0.2


@dataclass(frozen=True)
class JobScript:
    """The pace at which training pods print their steps."""

    step_s: float = 1.0
    under_fault_s: float = 1.0


@dataclass(frozen=True)
class Script:
    """The reaction of a cluster to a fault, and the lives of its pods."""

    alerts: tuple[tuple[str, Mapping[str, str]], ...] = ()
    """Names and labels of the alerts that fire for the node."""
    taints: tuple[Taint, ...] = ()
    cordons: bool = False
    line_arrives: Times = (0.1,)
    tainted: Times = (0.2,)
    fires: Times = (0.6,)
    notified: Times = (0.7,)
    measured: tuple[float, float] = (100.0, 100.0)
    """What a canary measures on a healthy node, and where a fault is in."""
    resolves_s: float = 1.0
    """From the moment at which the fault is out, or the node in service again, to the alert's end."""
    latency_s: float = 0.01
    """From a change in the cluster to the watch that brings it."""
    scheduled_s: float = 0.05
    reboot_s: float = 5.0
    agents: Mapping[str, AgentScript] = field(default_factory=dict)
    """By role, which is empty for a pod of nobody's game-day; a role that is not named has the defaults."""
    prometheus_ahead_s: float = 0.0
    """How far Prometheus' clock is ahead of all others."""
    away: tuple[Away, ...] = ()
    changes: tuple[NodeChange, ...] = ()
    events: tuple[NodeEvent, ...] = ()
    job: JobScript | None = None
    """None: training prints nothing."""
    queries: Mapping[str, tuple[tuple[float, float | None], ...]] = field(default_factory=dict)
    """By query: its value from so many seconds after the fault on; None is no series. The first is that of before."""

    def agent(self, role: str) -> AgentScript:
        """Return what becomes of the pods of a role."""
        return self.agents.get(role, AgentScript())

    def without_detector(self) -> Script:
        """Return the same cluster with nobody who taints or marks, and no rule that fires."""
        return replace(self, tainted=(), fires=(), notified=(), changes=(), events=())

    @classmethod
    def as_expected(cls, plan: Plan) -> Script:
        """Return a cluster that does what a plan expects, quickly."""
        taints = tuple(Taint(key=one.key, value=one.value, effect=one.effect) for one in plan.expect.taints)
        return cls(
            alerts=tuple((one.name, one.labels) for one in plan.expect.alerts),
            taints=taints,
            cordons=plan.expect.cordoned is not None,
            changes=tuple(_marks(plan)),
            events=tuple(NodeEvent(one.reason, one.type or "Warning") for one in plan.expect.events),
            measured=(100.0, _measured_during(plan)),
        )


def _marks(plan: Plan) -> Iterator[NodeChange]:
    """Yield the conditions and labels that a plan expects, and their ends."""
    ends: Any = "repaired" if plan.recover.repairs_node else "out"
    for one in plan.expect.conditions:
        yield NodeChange.condition(one.type, one.status, one.reason or "Scripted")
        if one.clears_within:
            yield NodeChange.condition(one.type, "False" if one.status == "True" else "True", "Well", when=ends)
    for label in plan.expect.labels:
        yield NodeChange.label(label.key, label.value or "scripted")
        if label.key not in plan.expect.labels_left:
            yield NodeChange.label(label.key, None, when=ends)


def _measured_during(plan: Plan) -> float:
    """Return a value beyond the bound, in percent of the one before, that a plan expects of its canary."""
    canary = plan.expect.canary
    if canary is not None and canary.falls_below is not None:
        return canary.falls_below * 100 / 2
    return canary.rises_above * 100 * 2 if canary is not None and canary.rises_above is not None else 100.0
