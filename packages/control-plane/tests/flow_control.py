"""The flow schemas and priority levels that every API server makes for itself, as it serves them (Kubernetes 1.37)."""

from __future__ import annotations

from typing import Any

from gameday_control_plane.flow_control_seats import FlowSchema, PriorityLevel


def level_object(name: str, shares: int, *, lendable: int = 0, hand_size: int = 6, **limited: Any) -> dict[str, Any]:
    """A limited level that queues, as the server serves it."""
    queuing = {"queues": 64, "handSize": hand_size, "queueLengthLimit": 50}
    spec = {
        "nominalConcurrencyShares": shares,
        "lendablePercent": lendable,
        "limitResponse": {"type": "Queue", "queuing": queuing},
        **limited,
    }
    return {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": spec}}


def schema_object(
    name: str, level: str, precedence: int, subjects: list[dict[str, Any]], *resource_rules: dict[str, Any]
) -> dict[str, Any]:
    """A flow schema of one rule, as the server serves it."""
    rules = [{"subjects": subjects, "resourceRules": list(resource_rules)}] if resource_rules else None
    spec = {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": rules}
    return {"metadata": {"name": name}, "spec": spec}


def group(name: str) -> dict[str, Any]:
    return {"kind": "Group", "group": {"name": name}}


def user(name: str) -> dict[str, Any]:
    return {"kind": "User", "user": {"name": name}}


def service_account(namespace: str, name: str) -> dict[str, Any]:
    return {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}}


def rule(
    verbs: str = "*", resources: str = "*", groups: str = "*", namespaces: str = "*", *, cluster: bool = True
) -> dict[str, Any]:
    """A resource rule; lists are written with commas, and the server leaves clusterScope out where it is false."""
    texts = {"verbs": verbs, "resources": resources, "apiGroups": groups, "namespaces": namespaces}
    return {key: text.split(",") for key, text in texts.items()} | ({"clusterScope": True} if cluster else {})


_REJECTS = {"limitResponse": {"type": "Reject"}}
_ALL = [group("system:unauthenticated"), group("system:authenticated")]
_LEADERS = [user("system:kube-controller-manager"), user("system:kube-scheduler"), service_account("kube-system", "*")]

STOCK_LEVELS = tuple(
    map(
        PriorityLevel.model_validate,
        (
            {
                "metadata": {"name": "exempt"},
                "spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
            },
            level_object("catch-all", 5, **_REJECTS),
            level_object("system", 30, lendable=33),
            level_object("node-high", 40, lendable=25),
            level_object("leader-election", 10, hand_size=4),
            level_object("workload-high", 40, lendable=50),
            level_object("workload-low", 100, lendable=90),
            level_object("global-default", 20, lendable=50),
        ),
    )
)

STOCK_SCHEMAS = tuple(
    map(
        FlowSchema.model_validate,
        (
            schema_object("exempt", "exempt", 1, [group("system:masters")], rule()),
            schema_object("probes", "exempt", 2, _ALL),
            schema_object(
                "system-leader-election",
                "leader-election",
                100,
                _LEADERS,
                rule("get,create,update", "leases", "coordination.k8s.io", cluster=False),
            ),
            schema_object(
                "system-node-high",
                "node-high",
                400,
                [group("system:nodes")],
                rule(resources="nodes,nodes/status", groups=""),
                rule(resources="leases", groups="coordination.k8s.io", cluster=False),
            ),
            schema_object("system-nodes", "system", 500, [group("system:nodes")], rule()),
            schema_object(
                "kube-controller-manager", "workload-high", 800, [user("system:kube-controller-manager")], rule()
            ),
            schema_object("kube-scheduler", "workload-high", 800, [user("system:kube-scheduler")], rule()),
            schema_object(
                "kube-system-service-accounts", "workload-high", 900, [service_account("kube-system", "*")], rule()
            ),
            schema_object("service-accounts", "workload-low", 9000, [group("system:serviceaccounts")], rule()),
            schema_object("global-default", "global-default", 9900, _ALL, rule()),
            schema_object("catch-all", "catch-all", 10000, _ALL, rule()),
        ),
    )
)
