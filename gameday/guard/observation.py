"""A run as guardrails see it: limits, the targets as last watched, and the answers of servers.

A server gets each question at most once per observation, even if several guardrails need the answer. The run's own
watches cost nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
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

WATCH_HINT = "is the API server up, and may the run's account watch nodes and pods?"
"""The hint if a watch is down, so that the targets' newest state is unknown."""


@dataclass(frozen=True)
class Limit:
    """The stricter of the plan's and the profile's number."""

    value: float
    source: Source

    def describe(self, unit: str = "") -> str:
        """Return the limit in words; `unit` follows the number."""
        return f"at most {self.value:g}{unit} ({self.source})"


class Observation:
    """A look of the guardrails at a run. A property raises AdapterError if its server does not answer."""

    def __init__(self, run: ReadOnlyRun, targets: tuple[Target, ...]) -> None:
        """Start a look.

        Args:
            run: The run.
            targets: Its targets; none before they are chosen.
        """
        self.run = run
        self.targets = targets
        self.now = run.clock.now()

    @property
    def plan(self) -> Plan:
        return self.run.plan

    @property
    def plan_guardrails(self) -> Guardrails:
        return self.run.plan.guardrails

    @property
    def profile_guardrails(self) -> ClusterGuardrails:
        return self.run.profile.guardrails

    @property
    def longest_run(self) -> timedelta:
        """The longest time for the whole run: the plan's limit or the profile's, the shorter of the two."""
        return self.profile_guardrails.longest_run(self.plan_guardrails)

    @property
    def season_nodes(self) -> frozenset[str]:
        """The targets, and every node of the same season: we cause their trouble ourselves."""
        siblings = self.run.member.sibling_nodes if self.run.member else frozenset[str]()
        return siblings | {target.node for target in self.targets}

    @cached_property
    def broken_nodes(self) -> frozenset[str]:
        """The targets, and the nodes that other runs of the season hold now; costs one request, only in a season."""
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
        """Return the smaller of the plan's and the profile's number of this name; None if neither is set."""
        return _stricter(getattr(self.plan_guardrails, name), getattr(self.profile_guardrails, name))

    def both_lists(self, name: str) -> frozenset[str]:
        """Return the plan's and the profile's lists of this name together."""
        return frozenset((*getattr(self.plan_guardrails, name), *getattr(self.profile_guardrails, name)))

    @property
    def windows(self) -> tuple[tuple[Source, tuple[TimeWindow, ...]], ...]:
        """The sets of windows; the current time must be in one window of each set."""
        sets: tuple[tuple[Source, tuple[TimeWindow, ...]], ...] = (
            ("plan", self.plan_guardrails.windows),
            ("profile", self.profile_guardrails.windows),
        )
        return tuple((source, windows) for source, windows in sets if windows)

    def before(self, node: str) -> NodeSnapshot:
        """Return the node as it was when it was chosen."""
        return self.run.nodes.before(node)

    def node_now(self, node: str) -> NodeSnapshot | None:
        """Return the node as its watch last saw it; None if it is gone."""
        return self.run.nodes.now(node)

    @property
    def watch_trouble(self) -> str:
        """The reason why the watches of the targets may show an old state; empty if they are up."""
        return "; ".join(filter(None, (self.run.nodes.trouble(target.node) for target in self.targets)))

    def pods(self, node: str) -> list[Any]:
        """Return the pods (V1Pod) on a target that have not ended and are not this run's own, as last watched."""
        return [pod for pod in self.run.nodes.pods_on(node) if self._belongs_to_others(pod)]

    def _belongs_to_others(self, pod: Any) -> bool:
        ended = pod.status is not None and pod.status.phase in ("Succeeded", "Failed")
        return not ended and (pod.metadata.labels or {}).get("gameday.dev/run") != self.run.id

    @cached_property
    def pool(self) -> list[Candidate]:
        """The first page of the GPU pool; one request of about 300 bytes a node."""
        return self.run.kubernetes.candidates(self.profile_guardrails.pool_selector)

    def nodes_in_domain(self, value: str) -> list[Candidate]:
        """Return the first page of the pool's nodes in one rack or zone."""
        profile = self.profile_guardrails
        return self.run.kubernetes.candidates({**profile.pool_selector, profile.topology_label: value})

    @cached_property
    def alerts(self) -> tuple[ActiveAlert, ...]:
        """The active alerts of Prometheus."""
        return self.run.servers.prometheus.alerts()

    def node_of(self, labels: dict[str, str]) -> str | None:
        """Return the node that the labels of an alert or a series name; None if they name none."""
        profile = self.run.profile
        return labels.get(profile.alert_node_label) or labels.get(profile.prometheus_node_label)


def first_names(names: Collection[str], most: int = 3) -> str:
    """Return the first names in order, and how many more there are."""
    first = sorted(names)[:most]
    return ", ".join(first) + (f" and {len(names) - most} more" if len(names) > most else "")


def _stricter(of_plan: float | None, of_profile: float | None) -> Limit | None:
    if of_profile is None or (of_plan is not None and of_plan < of_profile):
        return Limit(of_plan, "plan") if of_plan is not None else None
    return Limit(of_profile, "plan and profile" if of_plan == of_profile else "profile")
