"""Runs as guardrails see them: real plans, profiles, events and API objects, without a cluster behind."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kubernetes import client

from gameday.clock import Clock
from gameday.cluster.call_counter import CallCounter
from gameday.cluster.disruption_budgets import DisruptionBudget
from gameday.cluster.kubernetes import Candidate
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.prometheus import ActiveAlert, AlertingRule, Sample
from gameday.errors import AdapterError
from gameday.faults.registry import parameter_models
from gameday.guard.observation import Observation
from gameday.history.events import Event, TargetsChosen
from gameday.plan.load import LoadedPlan, parse_plan
from gameday.plan.models import Plan
from gameday.run.abort import Abort
from gameday.run.season_member import SeasonMember
from gameday.values.nodes import NodeSnapshot
from gameday.values.results import Step
from tests.support.runs import chosen_target

OPTED_IN = {"gameday.dev/opt-in": "true", "topology.kubernetes.io/zone": "a"}
SERVER = {"url": "http://127.0.0.1:9"}


def plan(**parts: Any) -> Plan:
    content: dict[str, Any] = {
        "apiVersion": "gameday/v1",
        "name": "quick",
        "title": "A quick game-day",
        "hypothesis": "The node is quarantined.",
        "fault": {"type": "xid", "xid": 95},
        "expect": {"taints": [{"key": "trainy.konduktor.ai/faulty", "value": "true", "within": "10s"}]},
        **parts,
    }
    return parse_plan(json.dumps(content).encode(), "plan.yaml", parameter_models()).plan


def profile(**guardrails: Any) -> ClusterProfile:
    return ClusterProfile(prometheus=SERVER, alertmanager=SERVER, loki=SERVER, guardrails=guardrails)


def node(name: str, labels: dict[str, str] | None = None, gpus: int | None = 8) -> NodeSnapshot:
    return NodeSnapshot(
        node=name,
        resource_version="1",
        unschedulable=False,
        taints=(),
        labels=OPTED_IN if labels is None else labels,
        annotations={},
        conditions={"Ready": "True"},
        boot_id="b",
        allocatable_gpus=gpus,
    )


def pod(
    name: str,
    namespace: str = "training",
    *,
    gpus: int = 1,
    labels: dict[str, str] | None = None,
    priority: str | None = None,
    owner: str = "Job",
) -> client.V1Pod:
    resources = client.V1ResourceRequirements(limits={"nvidia.com/gpu": str(gpus)} if gpus else {})
    reference = client.V1OwnerReference(api_version="v1", kind=owner, name="owner", uid="u")
    return client.V1Pod(
        metadata=client.V1ObjectMeta(
            name=name, namespace=namespace, uid=name, labels=labels or {}, owner_references=[reference]
        ),
        spec=client.V1PodSpec(
            containers=[client.V1Container(name="c", resources=resources)], priority_class_name=priority
        ),
        status=client.V1PodStatus(phase="Running"),
    )


def firing(name: str, severity: str = "warning", on: str | None = None) -> ActiveAlert:
    labels = {"alertname": name, "severity": severity, **({"node": on} if on else {})}
    return ActiveAlert(labels=labels, state="firing", activeAt=datetime.now(UTC), value="1")


def budget(name: str, allowed: int, **labels: str) -> DisruptionBudget:
    return DisruptionBudget(name=name, match_labels=labels, expressions=(), selects_nothing=False, allowed=allowed)


@dataclass
class FakeKubernetes:
    """Answers from what a test put in; `asked` is every request."""

    pool: list[Candidate] = field(default_factory=list)
    budgets: dict[str, list[DisruptionBudget]] = field(default_factory=dict)
    counter: CallCounter = field(default_factory=CallCounter)
    asked: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    """Nodes whose leases other runs hold."""

    @property
    def coordination(self) -> FakeKubernetes:
        return self

    def explained(self, act: str) -> AbstractContextManager[None]:
        return nullcontext()

    def list_namespaced_lease(self, namespace: str) -> Any:
        self.asked.append(f"leases {namespace}")
        names = [client.V1ObjectMeta(name=f"gameday-node-{node}") for node in self.held]
        return client.V1LeaseList(items=[client.V1Lease(metadata=name) for name in names])

    def candidates(self, selector: dict[str, str]) -> list[Candidate]:
        self.asked.append(f"candidates {selector}")
        return self.pool

    def disruption_budgets(self, namespace: str) -> list[DisruptionBudget]:
        self.asked.append(f"budgets {namespace}")
        return self.budgets.get(namespace, [])


def alerting_rule(name: str, last_error: str = "") -> AlertingRule:
    content = {
        "type": "alerting",
        "name": name,
        "query": "up == 0",
        "duration": 0,
        "state": "inactive",
        "health": "ok",
        "alerts": [],
    }
    return AlertingRule.model_validate({**content, "labels": {}, "lastError": last_error, "annotations": {}})


@dataclass
class FakePrometheus:
    """`known` are the answers to queries, by a piece of the query; `down`: it does not answer."""

    active: list[ActiveAlert] = field(default_factory=list)
    known: dict[str, list[Sample]] = field(default_factory=dict)
    rules: dict[str, AlertingRule | None] = field(default_factory=dict)
    """Rules by name; one that is missing here exists and evaluates."""
    down: bool = False

    def alerts(self) -> tuple[ActiveAlert, ...]:
        if self.down:
            raise AdapterError("http://127.0.0.1:9/api/v1/alerts", "connection refused")
        return tuple(self.active)

    def rule(self, name: str) -> AlertingRule | None:
        return self.rules.get(name, alerting_rule(name))

    def query(self, promql: str) -> list[Sample]:
        if self.down:
            raise AdapterError("http://127.0.0.1:9/api/v1/query", "connection refused")
        return next((samples for piece, samples in self.known.items() if piece in promql), [])


@dataclass
class _Servers:
    prometheus: FakePrometheus


@dataclass
class FakeNodes:
    """The watches' last words about the targets; a test changes `current`, `pods` and `blind`."""

    targets: tuple[NodeSnapshot, ...]
    blind: str = ""
    looks: int = 0

    def __post_init__(self) -> None:
        self.current: dict[str, NodeSnapshot | None] = {one.node: one for one in self.targets}
        self.pods: dict[str, list[Any]] = {one.node: [] for one in self.targets}

    def before(self, node: str) -> NodeSnapshot:
        return next(one for one in self.targets if one.node == node)

    def now(self, node: str) -> NodeSnapshot | None:
        self.looks += 1
        return self.current[node]

    def follows(self, node: str) -> bool:
        return node in self.pods

    def trouble(self, node: str) -> str:
        return self.blind

    def pods_on(self, node: str) -> list[Any]:
        return self.pods[node]

    def gpu_pods_on(self, node: str) -> list[Any]:
        return self.pods[node]


class FakeRun:
    """As much of a run as guardrails look at; its abort and its events are the real ones."""

    def __init__(self, plan: Plan, profile: ClusterProfile, *nodes: NodeSnapshot, clock: Clock = Clock()) -> None:
        self.id, self.plan, self.profile = "20260101-000000", plan, profile
        loaded = LoadedPlan(plan, b"", "", Path("plan.yaml"))
        self.record = SimpleNamespace(
            loaded=loaded,
            step=Step.AWAIT_ALERT,
            abort=Abort(clock),
            started_boottime_s=clock.boottime(),
            clock=clock,
        )
        self.clock = self.record.clock
        self.member: SeasonMember | None = None
        self.targets = tuple(chosen_target(one, index=index) for index, one in enumerate(nodes))
        self.nodes = FakeNodes(nodes)
        self.kubernetes, self.servers = FakeKubernetes(), _Servers(FakePrometheus())
        self.quarantine_keys = ("trainy.konduktor.ai/faulty",)
        self.events = list[Event]()

    def history(self) -> Any:
        chosen = TargetsChosen(
            targets=tuple(one.target for one in self.targets), candidates=len(self.targets), rule="", seed=0
        )
        return SimpleNamespace(last=lambda kind: chosen if kind is TargetsChosen else None)

    def asked_often(self) -> bool:
        """Return True once its targets were looked at a few times."""
        return self.nodes.looks > 2

    def note(self, event: Event) -> None:
        self.events.append(event)

    def observe(self) -> Observation:
        return Observation(self, tuple(one.target for one in self.targets))  # type: ignore[arg-type]


def samples(*nodes: str) -> list[Sample]:
    return [Sample("", {"node": name}, datetime.now(UTC), 1.0) for name in nodes]
