"""A run as guardrails see it: limits, targets as the watches last saw them, and answers that cost a request.

Each server is asked a question at most once per observation, however many guardrails want to know. What the run's own
watches show costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal

from gameday.cluster.kubernetes import Candidate
from gameday.cluster.profile import ClusterGuardrails
from gameday.cluster.prometheus import ActiveAlert
from gameday.ledger.lease import node_lease
from gameday.plan.limits import Guardrails, TimeWindow
from gameday.plan.models import Plan
from gameday.run.run import ReadOnlyRun
from gameday.values.nodes import NodeSnapshot, Target

Source = Literal["plan", "profile", "plan and profile"]


BLIND_HINT = "is the API server up, and may the run's account watch nodes and pods?"


@dataclass(frozen=True)
class Limit:
    """The stricter of two numbers, and whose it is."""

    value: float
    source: Source

    def shown(self, unit: str) -> str:
        return f"at most {self.value:g}{unit} ({self.source})"


class Observation:
    """One look of the guardrails at a run. A property raises AdapterError where its server does not answer."""

    def __init__(self, run: ReadOnlyRun, targets: tuple[Target, ...]) -> None:
        """Begin a look.

        Args:
            run: The run.
            targets: Its targets; none before they are chosen.
        """
        self.run = run
        self.targets = targets
        self.now = datetime.now(UTC)

    @property
    def plan(self) -> Plan:
        return self.run.plan

    @property
    def of_plan(self) -> Guardrails:
        return self.run.plan.guardrails

    @property
    def of_profile(self) -> ClusterGuardrails:
        return self.run.profile.guardrails

    @property
    def ours(self) -> frozenset[str]:
        """The targets, and every node of the same season: what is amiss with those is nobody else's trouble."""
        others = self.run.member.sibling_nodes if self.run.member else frozenset[str]()
        return others | {target.node for target in self.targets}

    @cached_property
    def broken(self) -> frozenset[str]:
        """The targets, and the nodes that other runs of the season hold right now; one request, in a season only."""
        own = frozenset(target.node for target in self.targets)
        if self.run.member is None:
            return own
        kubernetes = self.run.kubernetes
        with kubernetes.explained("list leases"):
            leases = kubernetes.coordination.list_namespaced_lease(self.run.profile.namespace).items
        prefix = node_lease("")
        held = {lease.metadata.name.removeprefix(prefix) for lease in leases if lease.metadata.name.startswith(prefix)}
        return own | (held & self.run.member.sibling_nodes)

    def strictest(self, name: str) -> Limit | None:
        """The smaller of the plan's and the profile's number of this name; None where neither is set."""
        return stricter(getattr(self.of_plan, name), getattr(self.of_profile, name))

    def union(self, name: str) -> tuple[frozenset[str], str]:
        """Return the plan's and the profile's list of this name as one, and the same as text."""
        both = frozenset((*getattr(self.of_plan, name), *getattr(self.of_profile, name)))
        return both, ", ".join(sorted(both))

    @property
    def windows(self) -> tuple[tuple[Source, tuple[TimeWindow, ...]], ...]:
        """The sets of windows; now must lie in one of each set."""
        sets: tuple[tuple[Source, tuple[TimeWindow, ...]], ...] = (
            ("plan", self.of_plan.windows),
            ("profile", self.of_profile.windows),
        )
        return tuple((source, windows) for source, windows in sets if windows)

    def before(self, node: str) -> NodeSnapshot:
        """The node as it was when it was chosen."""
        return self.run.nodes.before(node)

    def node_now(self, node: str) -> NodeSnapshot | None:
        return self.run.nodes.now(node)

    @property
    def blind(self) -> str:
        """Why the watches of the targets may show an old state; empty where they are up."""
        return "; ".join(filter(None, (self.run.nodes.trouble(target.node) for target in self.targets)))

    def pods(self, node: str) -> list[Any]:
        """Pods on a target that have not ended and are not this run's own, as the watch last saw them."""
        return [pod for pod in self.run.nodes.pods_on(node) if self._is_anothers(pod)]

    def _is_anothers(self, pod: Any) -> bool:
        ended = pod.status is not None and pod.status.phase in ("Succeeded", "Failed")
        return not ended and (pod.metadata.labels or {}).get("gameday.dev/run") != self.run.id

    @cached_property
    def pool(self) -> list[Candidate]:
        """The first page of the GPU pool; one request of about 300 bytes a node."""
        return self.run.kubernetes.candidates(self.of_profile.pool_selector)

    def domain(self, value: str) -> list[Candidate]:
        """The first page of the pool's nodes in one rack or zone."""
        selector = {**self.of_profile.pool_selector, self.of_profile.topology_label: value}
        return self.run.kubernetes.candidates(selector)

    @cached_property
    def alerts(self) -> tuple[ActiveAlert, ...]:
        return self.run.servers.prometheus.alerts()

    def node_of(self, labels: dict[str, str]) -> str | None:
        """The node that an alert or a series speaks of."""
        profile = self.run.profile
        return labels.get(profile.alert_node_label) or labels.get(profile.prometheus_node_label)


def stricter(of_plan: float | None, of_profile: float | None) -> Limit | None:
    if of_profile is None or (of_plan is not None and of_plan < of_profile):
        return Limit(of_plan, "plan") if of_plan is not None else None
    return Limit(of_profile, "plan and profile" if of_plan == of_profile else "profile")


def longest_run(plan: Guardrails, profile: ClusterGuardrails) -> timedelta:
    """How long a whole run may take: the plan's limit, or the profile's where that is shorter."""
    return plan.max_duration if profile.max_duration is None else min(plan.max_duration, profile.max_duration)


def few(names: Collection[str], most: int = 3) -> str:
    """The first names in order and how many more there are."""
    shown = sorted(names)[:most]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")
