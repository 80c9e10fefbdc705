"""What a watch sends, and in which order."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import MERGE, Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]


def _labels(c: Client, path: str, **labels: str | None) -> None:
    c.do("PATCH", path, {"metadata": {"labels": labels}}, MERGE)


@script
def watch_from_a_version(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    start = c.do("GET", configmaps)["metadata"]["resourceVersion"]
    c.do("POST", configmaps, {"metadata": {"name": "one"}, "data": {"k": "1"}})
    made = c.do("GET", f"{configmaps}/one")["metadata"]["resourceVersion"]
    c.do("PATCH", f"{configmaps}/one", {"data": {"k": "2"}}, MERGE)
    c.do("PATCH", f"{configmaps}/one", {"data": {"k": "2"}}, MERGE)
    c.do("POST", configmaps, {"metadata": {"name": "two"}})
    c.do("DELETE", f"{configmaps}/one")
    c.watch("all that happened since", configmaps, {"resourceVersion": start}, until=4)
    c.watch("all that happened since one was made", configmaps, {"resourceVersion": made}, until=3)

    def more() -> None:
        c.do("PATCH", f"{configmaps}/two", {"data": {"k": "3"}}, MERGE)
        c.do("DELETE", f"{configmaps}/two")

    c.watch("what happens while watching", configmaps, {"resourceVersion": start}, until=6, during=more)
    c.watch("the end after a time", configmaps, {"resourceVersion": start, "timeoutSeconds": "1"})


@script
def watch_deletion(c: Client) -> None:
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    start = c.do("GET", pods)["metadata"]["resourceVersion"]
    spec = {"nodeName": "watch-deletion", "containers": [{"name": "main", "image": "busybox:1"}]}
    c.do("POST", pods, {"metadata": {"name": "graceful"}, "spec": {**spec, "terminationGracePeriodSeconds": 7}})
    c.do("DELETE", f"{pods}/graceful")
    c.do("DELETE", f"{pods}/graceful?gracePeriodSeconds=0")
    kept = {"name": "kept", "finalizers": ["example.com/held"]}
    c.do("POST", pods, {"metadata": kept, "spec": spec})
    c.do("DELETE", f"{pods}/kept?gracePeriodSeconds=0")
    c.do("PATCH", f"{pods}/kept", {"metadata": {"finalizers": None}}, MERGE)
    brief = {"resourceVersion": start, "fieldSelector": "spec.nodeName=watch-deletion"}
    metadata = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    c.watch("a graceful deletion and one that waits for a finalizer", pods, brief, until=6, headers=metadata)


@script
def watch_initial_state(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    ours = {"labelSelector": "ours"}
    for name in ("b", "a", "c"):
        c.do("POST", configmaps, {"metadata": {"name": name, "labels": {"ours": "yes"}}})
    c.do("DELETE", f"{configmaps}/b")
    c.do("GET", configmaps)

    def more() -> None:
        _labels(c, f"{configmaps}/a", more="yes")

    by_name = {"fieldSelector": "metadata.name=a"}
    c.watch("one object without a version", configmaps, by_name, until=2, during=more)
    c.watch("one object from version 0", configmaps, {**by_name, "resourceVersion": "0"}, until=1)
    c.watch("no object without a version", configmaps, {"labelSelector": "ours=no", "timeoutSeconds": "1"})
    initial = {**ours, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    c.watch("initial events", configmaps, {**initial, "timeoutSeconds": "1", **by_name})
    marked = {**initial, "allowWatchBookmarks": "true"}

    def at_end(event: Json) -> bool:
        return bool(event["type"] == "BOOKMARK")

    c.watch("initial events and the bookmark behind them", configmaps, {**marked, **by_name}, until=at_end)
    c.watch("initial events of version 0", configmaps, {**marked, **by_name, "resourceVersion": "0"}, until=at_end)
    now = c.do("GET", configmaps)["metadata"]["resourceVersion"]
    c.watch("initial events of a version", configmaps, {**marked, **by_name, "resourceVersion": now}, until=at_end)
    c.watch("initial events of nothing", configmaps, {**marked, "fieldSelector": "metadata.name=z"}, until=at_end)
    none = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan", "timeoutSeconds": "1", **ours}
    c.watch("no initial events", configmaps, {**none, **by_name})
    c.watch("no initial events, from version 0", configmaps, {**none, **by_name, "resourceVersion": "0"})


@script
def watch_selected(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    start = c.do("GET", configmaps)["metadata"]["resourceVersion"]
    c.do("POST", configmaps, {"metadata": {"name": "one", "labels": {"half": "low"}}})
    c.do("POST", configmaps, {"metadata": {"name": "two", "labels": {"half": "high"}}})
    _labels(c, f"{configmaps}/two", half="low")
    _labels(c, f"{configmaps}/two", more="yes")
    _labels(c, f"{configmaps}/two", half="high")
    _labels(c, f"{configmaps}/one", half=None)
    c.do("DELETE", f"{configmaps}/one")
    c.do("DELETE", f"{configmaps}/two")
    c.do("POST", configmaps, {"metadata": {"name": "end", "labels": {"half": "low"}}})
    low = {"labelSelector": "half=low", "resourceVersion": start}
    c.watch("labels that come and go", configmaps, low, until=6)
    absent = {"labelSelector": "!half", "resourceVersion": start}
    c.watch("a label that goes", configmaps, absent, until=2)
    by_name = {"fieldSelector": "metadata.name=one", "resourceVersion": start}
    c.watch("one name", configmaps, by_name, until=3)

    pods = f"/api/v1/namespaces/{c.ns}/pods"
    start = c.do("GET", pods)["metadata"]["resourceVersion"]
    spec = {"containers": [{"name": "main", "image": "busybox:1"}]}
    c.do("POST", pods, {"metadata": {"name": "p"}, "spec": spec})
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "watch-selected"}}
    c.do("POST", f"{pods}/p/binding", binding)
    c.do("PATCH", f"{pods}/p/status", {"status": {"phase": "Failed"}}, MERGE)
    c.do("DELETE", f"{pods}/p?gracePeriodSeconds=0")
    metadata = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    mine = {"fieldSelector": "spec.nodeName=watch-selected,status.phase!=Failed", "resourceVersion": start}
    c.watch("a pod comes to a node and fails", pods, mine, until=2, headers=metadata)
    unbound = {"fieldSelector": "spec.nodeName=", "resourceVersion": start}
    c.watch("a pod leaves the queue", pods, unbound, until=2, headers=metadata)


@script
def watch_places(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    elsewhere = c.namespace(f"{c.ns}-2")
    start = c.do("GET", configmaps)["metadata"]["resourceVersion"]
    for space in (c.ns, elsewhere, c.ns):
        made = {"metadata": {"generateName": "one-", "labels": {"ours": "watch-places"}}}
        c.do("POST", f"/api/v1/namespaces/{space}/configmaps", made)
    ours = {"labelSelector": "ours=watch-places", "resourceVersion": start}
    c.watch("one namespace", configmaps, ours, until=2)
    c.watch("all namespaces", "/api/v1/configmaps", ours, until=3)
    c.do("POST", configmaps, {"metadata": {"name": "single"}})
    c.watch("one object's own path", f"{configmaps}/single", {"resourceVersion": start}, until=1)
    c.watch("a namespace that does not exist", "/api/v1/namespaces/nowhere/pods", {"timeoutSeconds": "1"})
    c.watch("a resource that does not exist", "/api/v1/nonsense", {"timeoutSeconds": "1"})


@script
def watch_forms(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    start = c.do("GET", configmaps)["metadata"]["resourceVersion"]
    c.do("POST", configmaps, {"metadata": {"name": "one", "labels": {"ours": "yes"}}, "data": {"k": "v"}})
    c.do("PATCH", f"{configmaps}/one", {"data": {"k": "w"}}, MERGE)
    c.do("DELETE", f"{configmaps}/one")
    since = {"resourceVersion": start}
    for step, accept in {
        "as tables": "application/json;as=Table;v=v1;g=meta.k8s.io",
        "as bare metadata": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "in a stream by name": "application/json;stream=watch",
        "anything": "*/*",
    }.items():
        c.watch(step, configmaps, since, until=3, headers={"Accept": accept})
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    for include in ("None", "Object"):
        c.watch(
            f"as tables that include {include}", configmaps, {**since, "includeObject": include}, until=2, headers=table
        )
    marked = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    c.watch("a bookmark as a table", configmaps, {**marked, "labelSelector": "ours"}, until=1, headers=table)
    bare = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    c.watch("a bookmark as bare metadata", configmaps, {**marked, "labelSelector": "ours"}, until=1, headers=bare)


@script
def watch_refused(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    brief = {"timeoutSeconds": "1"}
    for step, query in {
        "a malformed version": {"resourceVersion": "abc"},
        "a negative version": {"resourceVersion": "-1"},
        "a match without initial events": {"resourceVersionMatch": "NotOlderThan"},
        "an exact match": {"resourceVersionMatch": "Exact", "resourceVersion": "1"},
        "initial events without a match": {"sendInitialEvents": "true"},
        "initial events, exact": {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
        "no initial events without a match": {"sendInitialEvents": "false"},
        "initial events that are neither": {"sendInitialEvents": "maybe"},
        "initial events and a page": {
            "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "continue": "x", "limit": "1"},
    }.items():  # fmt: skip
        c.watch(step, configmaps, {**brief, **query})
    c.watch("a malformed timeout", configmaps, {"timeoutSeconds": "soon"})
    c.get("neither true nor false", configmaps, {"watch": "maybe", "labelSelector": "nobody", "timeoutSeconds": "1"})
    c.get("false", configmaps, {"watch": "false", "labelSelector": "nobody", "timeoutSeconds": "1"})
    c.get("0", configmaps, {"watch": "0", "labelSelector": "nobody", "timeoutSeconds": "1"})
    c.get("an empty word", configmaps, {"watch": "", "labelSelector": "nobody", "timeoutSeconds": "1"})
    c.watch("a version to come", configmaps, {"resourceVersion": "999999999", "timeoutSeconds": "1"})
    to_come = {"resourceVersion": "999999999", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    c.watch("initial events of a version to come", configmaps, {**to_come, "timeoutSeconds": "5"})
