"""Tables of pods and nodes: every STATUS that kubectl can print."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import MERGE, Client
from tests.kubesim.conformance.scripts import script
from tests.kubesim.conformance.scripts.reads_tables import END, START, TABLE

Json = dict[str, Any]
_POD = {"containers": [{"name": "main", "image": "busybox:1"}, {"name": "side", "image": "busybox:2"}]}


def _state(ready: bool, **state: Json) -> Json:
    return {"name": "main", "ready": ready, "restartCount": 0, "image": "i", "imageID": "", "state": state}


# name → (status, what else the spec holds)
_PODS: dict[str, tuple[Json, Json]] = {
    "pending": ({"phase": "Pending"}, {}),
    "running": (
        {
            "phase": "Running",
            "podIP": "10.0.0.7",
            "podIPs": [{"ip": "10.0.0.7"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                _state(True, running={"startedAt": START}),
                {**_state(True, running={"startedAt": START}), "name": "side"},
            ],
        },
        {"nodeName": "tables-node"},
    ),
    "restarted": (
        {
            "phase": "Running",
            "containerStatuses": [
                {
                    **_state(False, running={"startedAt": START}),
                    "restartCount": 3,
                    "lastState": {"terminated": {"exitCode": 1, "startedAt": START, "finishedAt": END}},
                }
            ],
        },
        {"nodeName": "tables-node"},
    ),
    "crashing": (
        {"phase": "Running", "containerStatuses": [_state(False, waiting={"reason": "CrashLoopBackOff"})]},
        {},
    ),
    "failed": ({"phase": "Failed", "containerStatuses": [_state(False, terminated={"exitCode": 7})]}, {}),
    "killed": (
        {"phase": "Failed", "containerStatuses": [_state(False, terminated={"exitCode": 137, "signal": 9})]},
        {},
    ),
    "oom": (
        {"phase": "Failed", "containerStatuses": [_state(False, terminated={"exitCode": 137, "reason": "OOMKilled"})]},
        {},
    ),
    "completed": (
        {"phase": "Succeeded", "containerStatuses": [_state(False, terminated={"exitCode": 0, "reason": "Completed"})]},
        {},
    ),
    "half-done": (
        {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [
                _state(False, terminated={"exitCode": 0, "reason": "Completed"}),
                {**_state(True, running={"startedAt": START}), "name": "side"},
            ],
        },
        {},
    ),
    "evicted": ({"phase": "Failed", "reason": "Evicted", "message": "no room"}, {}),
    "gated": (
        {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]},
        {"schedulingGates": [{"name": "example.com/g"}]},
    ),
    "readiness-gates": (
        {"phase": "Running", "conditions": [{"type": "example.com/a", "status": "True"}]},
        {"readinessGates": [{"conditionType": "example.com/a"}, {"conditionType": "example.com/b"}]},
    ),
    "nominated": ({"phase": "Pending", "nominatedNodeName": "tables-other"}, {}),
    "init-running": (
        {
            "phase": "Pending",
            "initContainerStatuses": [{**_state(False, running={"startedAt": START}), "name": "first"}],
        },
        {"initContainers": [{"name": "first", "image": "i"}, {"name": "second", "image": "i"}]},
    ),
    "init-failed": (
        {
            "phase": "Pending",
            "initContainerStatuses": [
                {**_state(False, terminated={"exitCode": 3}), "name": "first", "restartCount": 2}
            ],
        },
        {"initContainers": [{"name": "first", "image": "i"}]},
    ),
    "sidecar": (
        {
            "phase": "Running",
            "initContainerStatuses": [
                {**_state(True, running={"startedAt": START}), "name": "first", "started": True, "restartCount": 1}
            ],
            "containerStatuses": [_state(True, running={"startedAt": START})],
        },
        {"initContainers": [{"name": "first", "image": "i", "restartPolicy": "Always"}]},
    ),
}


@script
def table_of_pods(c: Client) -> None:
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    for name, (status, more) in _PODS.items():
        c.do("POST", pods, {"metadata": {"name": name}, "spec": {**_POD, **more}})
        c.do("PATCH", f"{pods}/{name}/status", {"status": status}, MERGE)
    for name in ("running", "failed"):
        c.do(
            "POST",
            pods,
            {
                "metadata": {"name": f"{name}-deleted", "finalizers": ["example.com/x"]},
                "spec": {**_POD, "nodeName": "tables-node"},
            },
        )
        c.do("PATCH", f"{pods}/{name}-deleted/status", {"status": {"phase": name.capitalize()}}, MERGE)
        c.do("DELETE", f"{pods}/{name}-deleted")
    c.get("every state", pods, {"includeObject": "None"}, headers=TABLE)


@script
def table_of_nodes(c: Client) -> None:
    mine = {"script": "table-of-nodes"}
    addresses = [
        {"type": "Hostname", "address": "h"},
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "InternalIP", "address": "10.0.0.2"},
        {"type": "ExternalIP", "address": "192.0.2.1"},
    ]
    info = dict.fromkeys(
        ("machineID", "systemUUID", "bootID", "kubeProxyVersion", "operatingSystem", "architecture"), "x"
    )
    info |= {"kernelVersion": "6.8", "osImage": "Linux", "containerRuntimeVersion": "c://1", "kubeletVersion": "v1.2.3"}
    ready = [{"type": "Ready", "status": "True"}]
    for name, labels, spec, status in (
        ("bare", {}, {}, {}),
        ("ready", {}, {}, {"conditions": ready, "addresses": addresses, "nodeInfo": info}),
        ("not-ready", {}, {}, {"conditions": [{"type": "Ready", "status": "False"}]}),
        ("unknown", {}, {}, {"conditions": [{"type": "Ready", "status": "Unknown"}]}),
        ("cordoned", {}, {"unschedulable": True}, {"conditions": ready}),
        (
            "roles",
            {"node-role.kubernetes.io/b": "", "node-role.kubernetes.io/a": "x", "kubernetes.io/role": "old"},
            {},
            {},
        ),
    ):
        node = {"metadata": {"name": f"table-of-nodes-{name}", "labels": {**mine, **labels}}, "spec": spec}
        c.do("POST", "/api/v1/nodes", {**node, "status": status})
    query = {"labelSelector": "script=table-of-nodes", "includeObject": "None"}
    c.get("every state", "/api/v1/nodes", query, headers=TABLE)
