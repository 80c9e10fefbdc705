"""Admission that game-days and detectors meet: taints of new nodes, tolerations, accounts, priorities."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import MERGE, STRATEGIC, Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]
MAIN: Json = {"name": "main", "image": "busybox:1"}


def _what(body: Any) -> Any:
    if body["kind"] == "Status":
        return body
    names = ("tolerations", "priority", "priorityClassName", "preemptionPolicy", "serviceAccountName", "volumes")
    return {name: body["spec"].get(name) for name in names}


@script
def admission_of_nodes(c: Client) -> None:
    nodes = "/api/v1/nodes"

    def create(name: str, **parts: Any) -> None:
        body = {"metadata": {"name": f"admission-of-nodes-{name}"}, **parts}
        c.send(f"a node {name}", "POST", nodes, body, only=lambda node: node["spec"])

    create("bare")
    create("ready", status={"conditions": [{"type": "Ready", "status": "True"}]})
    create("cordoned", spec={"unschedulable": True})
    create("tainted", spec={"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]})
    create("tainted-otherwise", spec={"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]})
    patch = [{"op": "remove", "path": "/spec/taints"}]
    c.send("the taint is taken off", "PATCH", f"{nodes}/admission-of-nodes-bare", patch,
           content_type="application/json-patch+json", only=lambda node: node["spec"])  # fmt: skip
    c.send("and stays off", "PATCH", f"{nodes}/admission-of-nodes-bare", {"metadata": {"labels": {"a": "b"}}},
           content_type=MERGE, only=lambda node: node["spec"])  # fmt: skip
    c.send("a new taint has its time", "PATCH", f"{nodes}/admission-of-nodes-bare", {"spec": {"taints": [
        {"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoSchedule"}]}}, content_type=STRATEGIC,
        only=lambda node: node["spec"])  # fmt: skip


@script
def admission_of_pods(c: Client) -> None:
    pods = f"/api/v1/namespaces/{c.ns}/pods"

    def create(step: str, spec: Json | None = None, **options: Any) -> None:
        body = {"metadata": {"name": "p"}, "spec": {"containers": [MAIN], **(spec or {})}}
        c.send(step, "POST", pods, body, query={"dryRun": "All"}, only=_what, **options)

    create("nothing special")
    evict = {"operator": "Exists", "effect": "NoExecute"}
    create("tolerates all evictions", {"tolerations": [evict]})
    create(
        "tolerates one", {"tolerations": [{**evict, "key": "node.kubernetes.io/unreachable", "tolerationSeconds": 5}]}
    )
    create("tolerates by another effect", {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]})
    create(
        "tolerates by value",
        {"tolerations": [{"key": "node.kubernetes.io/not-ready", "value": "x", "effect": "NoExecute"}]},
    )
    create("memory", {"containers": [{**MAIN, "resources": {"requests": {"memory": "1Gi"}}}]})
    create("no such priority", {"priorityClassName": "admission-none"})
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    c.do("POST", classes, {"metadata": {"name": "admission-high"}, "value": 1000, "preemptionPolicy": "Never"})
    c.until(f"{classes}/admission-high", lambda body: body is not None)
    create("a priority", {"priorityClassName": "admission-high"})
    create("a priority and another number", {"priorityClassName": "admission-high", "priority": 5})
    create("a priority and its number", {"priorityClassName": "admission-high", "priority": 1000})
    create("a system's priority", {"priorityClassName": "system-node-critical"})
    create("no such account", {"serviceAccountName": "nobody"})
    create("the old account field", {"serviceAccount": "default"})
    create("no token", {"automountServiceAccountToken": False})
    at = "/var/run/secrets/kubernetes.io/serviceaccount"
    mounted = {"containers": [{**MAIN, "volumeMounts": [{"name": "v", "mountPath": at}]}],
               "volumes": [{"name": "v", "emptyDir": {}}]}  # fmt: skip
    create("a token's place is taken", mounted)
    create("no such runtime class", {"runtimeClassName": "admission-none"})
    create("privileged", {"containers": [{**MAIN, "securityContext": {"privileged": True}}], "hostPID": True})
    create("no such pull secret", {"imagePullSecrets": [{"name": "nobody"}]})
    c.do("POST", f"/api/v1/namespaces/{c.ns}/serviceaccounts", {
        "metadata": {"name": "quiet"}, "automountServiceAccountToken": False,
        "imagePullSecrets": [{"name": "s"}]})  # fmt: skip
    body = {"metadata": {"name": "p"}, "spec": {"containers": [MAIN], "serviceAccountName": "quiet"}}
    c.send("an account that mounts nothing", "POST", pods, body, query={"dryRun": "All"},
           only=lambda pod: [pod["spec"].get("volumes"), pod["spec"].get("imagePullSecrets")])  # fmt: skip


def _kind(body: Any) -> Any:
    return body if body["kind"] == "Status" else body["kind"]


@script
def admission_warnings(c: Client) -> None:
    """What the server says in passing."""
    space = f"/api/v1/namespaces/{c.ns}"

    def create(step: str, path: str, **parts: Any) -> None:
        c.send(
            step,
            "POST",
            path,
            {"metadata": {"name": "w", **parts.pop("metadata", {})}, **parts},
            query={"dryRun": "All"},
            only=_kind,
        )

    create("a pod without warnings", f"{space}/pods", spec={"containers": [MAIN]})
    create(
        "an empty selector of a budget",
        f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets",
        spec={"minAvailable": 1, "selector": {}},
    )
    create("a token secret", f"{space}/secrets", type="kubernetes.io/service-account-token", metadata={
        "annotations": {"kubernetes.io/service-account.name": "default"}})  # fmt: skip
    create("an account with secrets", f"{space}/serviceaccounts", secrets=[{"name": "s"}])
