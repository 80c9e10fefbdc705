"""Bindings, statuses, logs of pods without a kubelet."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import JSON_PATCH, MERGE, STRATEGIC, Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]
NOBODY = "11111111-2222-3333-4444-555555555555"


def _pod(c: Client, name: str, **spec: Any) -> str:
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    c.do("POST", pods, {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec}})
    return f"{pods}/{name}"


@script
def subresource_binding(c: Client) -> None:
    one = _pod(c, "one")

    def bind(step: str, pod: str, target: Any, **meta: Any) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.rpartition("/")[2], **meta},
            "target": target,
        }
        c.send(step, "POST", f"{pod}/binding", body)

    node = {"apiVersion": "v1", "kind": "Node", "name": "binding-1"}
    bind("no target", one, {})
    bind("another kind of target", one, {"kind": "Pod", "name": "x"})
    bind("another name", one, node, name="two")
    c.send("dry", "POST", f"{one}/binding", {"metadata": {"name": "one"}, "target": node}, query={"dryRun": "All"})
    bind("bind", one, node, annotations={"why": "so"})
    c.get("bound", one)
    bind("bind again", one, node)
    bind("bind elsewhere", one, {**node, "name": "binding-2"})
    bind("of nothing", f"/api/v1/namespaces/{c.ns}/pods/nobody", node)
    bind("a pod that waits", _pod(c, "gated", schedulingGates=[{"name": "example.com/g"}]), node)
    going = _pod(c, "going")
    c.do("PATCH", going, {"metadata": {"finalizers": ["example.com/f"]}}, MERGE)
    c.do("DELETE", going)
    bind("a pod on its way out", going, node)


@script
def subresource_status(c: Client) -> None:
    one = _pod(c, "one", nodeName="subresource-status-1")
    status: Json = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "hostIP": "10.0.0.2",
                    "podIP": "10.1.0.2", "podIPs": [{"ip": "10.1.0.2"}], "startTime": "2026-01-02T03:04:05Z",
                    "containerStatuses": [{"name": "c", "ready": True, "restartCount": 0, "image": "i:1", "imageID": "",
                                           "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}]}  # fmt: skip
    c.send("running", "PATCH", f"{one}/status", {"status": status}, content_type=STRATEGIC)
    c.send("running still", "PATCH", f"{one}/status", {"status": status}, content_type=STRATEGIC)
    done = [
        {**status["containerStatuses"][0], "ready": False, "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
    ]
    c.send(
        "ended",
        "PATCH",
        f"{one}/status",
        {"status": {"phase": "Failed", "containerStatuses": done}},
        content_type=STRATEGIC,
    )
    c.send("running again", "PATCH", f"{one}/status", {"status": {"phase": "Running"}}, content_type=STRATEGIC)
    c.send(
        "a phase that does not exist",
        "PATCH",
        f"{one}/status",
        {"status": {"phase": "Nonsense"}},
        content_type=STRATEGIC,
    )
    restarted = [{**done[0], "state": {"running": {}}}]
    c.send(
        "a container that runs again",
        "PATCH",
        f"{one}/status",
        {"status": {"containerStatuses": restarted}},
        content_type=MERGE,
    )
    c.send("metadata by way of the status", "PATCH", f"{one}/status", {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["example.com/f"],
                     "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}},
        content_type=MERGE, only=lambda body: body["metadata"])  # fmt: skip
    c.send("a JSON patch", "PATCH", f"{one}/status", [{"op": "add", "path": "/status/reason", "value": "Why"}],
           content_type=JSON_PATCH, only=lambda body: body["status"])  # fmt: skip
    node = "/api/v1/nodes/subresource-status-1"
    c.do("POST", "/api/v1/nodes", {"metadata": {"name": "subresource-status-1"}})
    c.send("a node", "PATCH", f"{node}/status", {"status": {
        "capacity": {"cpu": "4", "memory": "1048576Ki", "nvidia.com/gpu": "8"}, "allocatable": {"cpu": 3.5},
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 1234}}, "nodeInfo": {"kernelVersion": "6"}}},
        content_type=STRATEGIC)  # fmt: skip
    c.send(
        "a node's spec",
        "PUT",
        f"{node}/status",
        {"metadata": {"name": "subresource-status-1"}, "spec": {"unschedulable": True}},
    )
    c.send("a node that is not there", "PATCH", "/api/v1/nodes/nobody/status", {"status": {}}, content_type=MERGE)
    c.send("a configmap has none", "PATCH", f"/api/v1/namespaces/{c.ns}/configmaps/one/status", {}, content_type=MERGE)
    c.send("a namespace's phase", "PATCH", f"/api/v1/namespaces/{c.ns}/status", {"status": {"conditions": [
        {"type": "Custom", "status": "True"}]}}, content_type=MERGE)  # fmt: skip


@script
def subresource_logs(c: Client) -> None:
    """What the API server itself answers, before and without any kubelet."""
    free = _pod(c, "free")
    two = [{"name": "c", "image": "i:1"}, {"name": "d", "image": "i:1"}]
    several = _pod(c, "several", containers=two, initContainers=[{"name": "first", "image": "i:1"}])
    bound = _pod(c, "bound", nodeName="subresource-logs-none")
    c.get("of nothing", f"/api/v1/namespaces/{c.ns}/pods/nobody/log")
    c.get("of a pod without a node", f"{free}/log")
    c.get("of no such container", f"{free}/log", {"container": "nope"})
    c.get("of a container that must be named", f"{several}/log")
    c.get("of an init container", f"{several}/log", {"container": "first"})
    c.get("of no such container among several", f"{several}/log", {"container": "nope"})
    c.get("of a pod on no such node", f"{bound}/log")
