"""What a watch sees of writes: one event for each, none for what changes nothing, the last state of what is gone."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import JSON_PATCH, MERGE, STRATEGIC, Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]


def _last(event: Json) -> bool:
    return bool(event["object"]["metadata"]["name"] == "sentinel")


@script
def watched_writes(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    since = c.do("GET", configmaps)["metadata"]["resourceVersion"]
    one = f"{configmaps}/one"
    c.do("POST", configmaps, {"metadata": {"name": "one"}, "data": {"step": "created"}})
    c.do("PUT", one, {"metadata": {"name": "one"}, "data": {"step": "replaced"}})
    c.do("PUT", one, {"metadata": {"name": "one"}, "data": {"step": "replaced"}})
    c.do("PATCH", one, {"data": {"step": "merged"}}, MERGE)
    c.do("PATCH", one, {"data": {"step": "merged"}}, MERGE)
    c.do("PATCH", one, {}, STRATEGIC)
    c.do("PATCH", one, [], JSON_PATCH)
    c.do("PATCH", one, [{"op": "add", "path": "/data/more", "value": "json"}], JSON_PATCH)
    c.do("PATCH", f"{one}?dryRun=All", {"data": {"step": "dry"}}, MERGE)
    c.do("DELETE", f"{one}?dryRun=All")
    c.do("PATCH", one, {"metadata": {"finalizers": ["example.com/f"]}}, MERGE)
    c.do("DELETE", one)
    c.do("DELETE", one)
    c.do("PATCH", one, {"metadata": {"finalizers": None}}, MERGE)
    c.do("POST", configmaps, {"metadata": {"name": "one"}})
    c.do("DELETE", one)
    c.do("POST", configmaps, {"metadata": {"name": "sentinel"}})
    c.watch("configmaps", configmaps, {"resourceVersion": since}, until=_last)


@script
def watched_pods(c: Client) -> None:
    """A pod's life: created, bound, running, evicted, gone."""
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    since = c.do("GET", pods)["metadata"]["resourceVersion"]
    one = f"{pods}/one"
    spec = {"containers": [{"name": "c", "image": "i:1"}], "schedulerName": "nobody"}
    c.do("POST", pods, {"metadata": {"name": "one"}, "spec": spec})
    c.do("POST", f"{one}/binding", {"metadata": {"name": "one"}, "target": {"kind": "Node", "name": "watched-pods-1"}})
    c.do("PATCH", f"{one}/status", {"status": {"phase": "Running"}}, MERGE)
    c.do("PATCH", f"{one}/status", {"status": {"phase": "Running"}}, MERGE)
    c.do("POST", f"{one}/eviction", {"metadata": {"name": "one"}})
    c.do("DELETE", one)
    c.do("DELETE", one, {"gracePeriodSeconds": 5})
    c.do("PATCH", f"{one}/status", {"status": {"phase": "Failed"}}, MERGE)
    c.do("DELETE", one, {"gracePeriodSeconds": 0})
    c.do("POST", pods, {"metadata": {"name": "two"}, "spec": spec})
    c.do("DELETE", f"{pods}/two")
    c.do("POST", pods, {"metadata": {"name": "three"}, "spec": {**spec, "nodeName": "watched-pods-1"}})
    c.do("DELETE", f"{pods}/three", {"gracePeriodSeconds": 0})
    c.do("POST", pods, {"metadata": {"name": "sentinel"}, "spec": spec})
    found = c.watch("pods", pods, {"resourceVersion": since}, until=_last)
    for event, shown in zip(found, c.exchanges[-1]["response"]["events"], strict=True):
        shown["object"] = {"metadata": event["object"]["metadata"], "status": event["object"]["status"],
                           "nodeName": event["object"]["spec"].get("nodeName")}  # fmt: skip
        shown["object"]["metadata"].pop("managedFields", None)


@script
def watched_nodes(c: Client) -> None:
    nodes, node = "/api/v1/nodes", "/api/v1/nodes/watched-nodes-1"
    since = c.do("GET", f"{nodes}?limit=1")["metadata"]["resourceVersion"]
    c.do("POST", nodes, {"metadata": {"name": "watched-nodes-1"}})
    taint = {"key": "a", "effect": "NoSchedule"}
    c.do("PATCH", node, {"spec": {"taints": [taint]}}, STRATEGIC)
    c.do("PATCH", node, {"spec": {"taints": [taint]}}, STRATEGIC)
    ready: Json = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-02T03:04:05Z"}
    c.do("PATCH", f"{node}/status", {"status": {"conditions": [ready]}}, STRATEGIC)
    c.do("PATCH", f"{node}/status", {"status": {"conditions": [ready]}}, STRATEGIC)
    c.do("PATCH", node, {"spec": {"unschedulable": True}}, MERGE)
    c.do("PATCH", node, {"spec": {"unschedulable": None}}, MERGE)
    c.do("DELETE", node)
    query = {"resourceVersion": since, "fieldSelector": "metadata.name=watched-nodes-1"}
    c.watch("a node", nodes, query, until=lambda event: bool(event["type"] == "DELETED"))


@script
def watched_collections(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    for name in ("a", "b", "c"):
        c.do("POST", configmaps, {"metadata": {"name": name, "labels": {"x": "y"}}})
    since = c.do("POST", configmaps, {"metadata": {"name": "d"}})["metadata"]["resourceVersion"]
    c.do("DELETE", f"{configmaps}?labelSelector=x%3Dy")
    owner = c.do("POST", configmaps, {"metadata": {"name": "owner"}})
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    c.do("POST", configmaps, {"metadata": {"name": "owned", "ownerReferences": [ref]}})
    c.do("DELETE", f"{configmaps}/owner")
    c.until(f"{configmaps}/owned", lambda body: body is None)
    c.do("POST", configmaps, {"metadata": {"name": "sentinel"}})
    c.watch("configmaps", configmaps, {"resourceVersion": since}, until=_last)
