"""DELETE: what comes back, grace, preconditions, propagation, finalizers, collections, namespaces."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import MERGE, Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]
POD: Json = {"containers": [{"name": "c", "image": "i:1"}]}
NOBODY = "11111111-2222-3333-4444-555555555555"


@script
def delete_answers(c: Client) -> None:
    containers = POD["containers"]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}
    core = f"/api/v1/namespaces/{c.ns}"
    selected = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    never = {"template": {"spec": {"containers": containers, "restartPolicy": "Never"}}}
    for path, spec in (
        (f"{core}/configmaps", {}),
        (f"{core}/secrets", {}),
        (f"{core}/serviceaccounts", {}),
        (f"{core}/pods", {"spec": POD}),
        (f"{core}/events", {"involvedObject": {"namespace": c.ns}}),
        ("/api/v1/nodes", {}),
        (f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases", {}),
        (f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets", {}),
        (f"/apis/apps/v1/namespaces/{c.ns}/daemonsets", {"spec": selected}),
        (f"/apis/batch/v1/namespaces/{c.ns}/jobs", {"spec": never}),
        (f"{rbac}/namespaces/{c.ns}/roles", {}),
        (f"{rbac}/namespaces/{c.ns}/rolebindings", {"roleRef": role}),
        (f"{rbac}/clusterroles", {}),
        (f"{rbac}/clusterrolebindings", {"roleRef": {**role, "kind": "ClusterRole"}}),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", {"value": 1}),
    ):  # fmt: skip
        kind = path.rpartition("/")[2]
        one = f"{path}/delete-answers-{kind}"
        # By default a job leaves orphans behind, and is gone only when the collector has been there.
        held = {"finalizers": ["example.com/f"]} if kind == "jobs" else {}
        c.do("POST", path, {"metadata": {"name": f"delete-answers-{kind}", **held}, **spec})
        c.send(kind, "DELETE", one, only=_answer)
        if held:
            c.until(one, lambda body: body["metadata"]["finalizers"] == ["example.com/f"])
        c.get(f"{kind}, afterwards", one, only=_answer)
        if held:
            c.do("PATCH", one, {"metadata": {"finalizers": None}}, MERGE)


def _answer(body: Any) -> Any:
    return body if body["kind"] == "Status" else {"kind": body["kind"], "metadata": body["metadata"]}


@script
def delete_pods(c: Client) -> None:
    pods = f"/api/v1/namespaces/{c.ns}/pods"

    def make(name: str, bound: bool = True, **spec: Any) -> str:
        node = {"nodeName": "delete-pods-1"} if bound else {"schedulerName": "nobody"}
        c.do("POST", pods, {"metadata": {"name": name}, "spec": {**POD, **node, **spec}})
        return f"{pods}/{name}"

    def meta(body: Any) -> Any:
        return body if body["kind"] == "Status" else {"metadata": body["metadata"], "phase": body["status"]["phase"],
                                                      "kind": body["kind"]}  # fmt: skip

    one = make("one")
    c.send("a bound pod", "DELETE", one, only=meta)
    c.send("again", "DELETE", one, only=meta)
    c.send("again with a longer grace", "DELETE", one, {"gracePeriodSeconds": 60}, only=meta)
    c.send("again with a shorter grace", "DELETE", one, {"gracePeriodSeconds": 5}, only=meta)
    c.get("still there", one, only=meta)
    c.send(
        "its status may still change",
        "PATCH",
        f"{one}/status",
        {"status": {"phase": "Failed"}},
        content_type=MERGE,
        only=meta,
    )
    c.send("again after it ended", "DELETE", one, only=meta)
    c.send("without grace", "DELETE", one, {"gracePeriodSeconds": 0}, only=meta)
    c.send("what is gone", "DELETE", one, {"gracePeriodSeconds": 0}, only=meta)
    c.send("an unbound pod", "DELETE", make("unbound", False), only=meta)
    c.send("an unbound pod with grace", "DELETE", make("unbound", False), {"gracePeriodSeconds": 30}, only=meta)
    c.send("grace 0 at once", "DELETE", make("two"), {"gracePeriodSeconds": 0}, only=meta)
    three = make("three", terminationGracePeriodSeconds=7)
    c.send("the pod's own grace", "DELETE", three, only=meta)
    c.send("grace in the query", "DELETE", f"{make('four')}?gracePeriodSeconds=9", only=meta)
    c.send("grace in both", "DELETE", f"{make('five')}?gracePeriodSeconds=9", {"gracePeriodSeconds": 8}, only=meta)
    c.send("grace 1", "DELETE", make("six"), {"gracePeriodSeconds": 1}, only=meta)
    c.send("a negative grace", "DELETE", make("seven"), {"gracePeriodSeconds": -1}, only=meta)
    c.send("a grace that is none", "DELETE", make("eight"), {"gracePeriodSeconds": "soon"}, only=meta)
    c.send("a grace in the query that is none", "DELETE", f"{pods}/eight?gracePeriodSeconds=soon", only=meta)
    c.send("a pod of no grace", "DELETE", make("nine", terminationGracePeriodSeconds=0), only=meta)
    ended = make("ended")
    c.do("PATCH", f"{ended}/status", {"status": {"phase": "Succeeded"}}, MERGE)
    c.send("a pod that has ended", "DELETE", ended, only=meta)
    held = make("held")
    c.do("PATCH", held, {"metadata": {"finalizers": ["example.com/f"]}}, MERGE)
    c.send("with a finalizer", "DELETE", held, only=meta)
    c.send("with a finalizer and no grace", "DELETE", held, {"gracePeriodSeconds": 0}, only=meta)
    c.send("the finalizer goes", "PATCH", held, {"metadata": {"finalizers": None}}, content_type=MERGE, only=meta)
    c.get("and the pod", held, only=meta)
    graceful = make("graceful")
    c.do("PATCH", graceful, {"metadata": {"finalizers": ["example.com/f"]}}, MERGE)
    c.send("a grace and a finalizer", "DELETE", graceful, only=meta)
    c.send(
        "the finalizer goes first", "PATCH", graceful, {"metadata": {"finalizers": None}}, content_type=MERGE, only=meta
    )
    c.send("the grace is over", "DELETE", graceful, {"gracePeriodSeconds": 0}, only=meta)


@script
def delete_preconditions(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    one = f"{configmaps}/one"
    made = c.send("create", "POST", configmaps, {"metadata": {"name": "one"}})
    c.send("another uid", "DELETE", one, {"preconditions": {"uid": NOBODY}})
    c.send("another version", "DELETE", one, {"preconditions": {"resourceVersion": "1"}})
    c.send("both wrong", "DELETE", one, {"preconditions": {"uid": NOBODY, "resourceVersion": "1"}})
    c.send("an empty uid", "DELETE", one, {"preconditions": {"uid": ""}}, query={"dryRun": "All"})
    c.send("in the query", "DELETE", one, query={"preconditions.uid": NOBODY, "dryRun": "All"})
    right = {"uid": made.body["metadata"]["uid"], "resourceVersion": made.rv}
    c.send("both right", "DELETE", one, {"preconditions": right})
    c.send("of what is gone", "DELETE", one, {"preconditions": right})
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    c.do("POST", pods, {"metadata": {"name": "p"}, "spec": {**POD, "nodeName": "delete-preconditions-1"}})
    c.send("a pod's uid", "DELETE", f"{pods}/p", {"preconditions": {"uid": NOBODY}})
    c.send("a pod's version", "DELETE", f"{pods}/p", {"preconditions": {"resourceVersion": "1"}})


@script
def delete_options(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"

    def delete(step: str, body: Any = None, query: Json | None = None, **options: Any) -> None:
        name = f"o{len(c.exchanges)}"
        c.do("POST", configmaps, {"metadata": {"name": name}})
        c.send(step, "DELETE", f"{configmaps}/{name}", body, query=query, **options)

    kind = {"apiVersion": "v1", "kind": "DeleteOptions"}
    delete("options with a kind", {**kind, "propagationPolicy": "Background"})
    delete("options of the group", {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"})
    delete("options of another kind", {"apiVersion": "v1", "kind": "ConfigMap"})
    delete("options of another version", {"apiVersion": "v2", "kind": "DeleteOptions"})
    delete("an empty body", b"")
    delete("an empty object", {})
    delete("no such policy", {"propagationPolicy": "Perhaps"})
    delete("no such policy in the query", None, {"propagationPolicy": "Perhaps"})
    delete("policy and orphans", {"propagationPolicy": "Background", "orphanDependents": True})
    delete("an empty policy", {"propagationPolicy": ""})
    delete("foreground", {"propagationPolicy": "Foreground"})
    delete("foreground in the query", None, {"propagationPolicy": "Foreground"})
    delete("orphan", {"propagationPolicy": "Orphan"})
    delete("orphans the old way", {"orphanDependents": True})
    delete("no orphans the old way", {"orphanDependents": False})
    delete("a wrong type", {"propagationPolicy": 5})
    delete("body and query", {"propagationPolicy": "Background"}, {"propagationPolicy": "Nonsense"})
    delete("a grace of a configmap", {"gracePeriodSeconds": 30})


@script
def delete_with_dependents(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"

    def family(name: str, finalizer: str = "", blocks: bool = True) -> str:
        owner = c.do("POST", configmaps, {"metadata": {"name": name}})
        ref = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": name,
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        meta = {"name": f"{name}-child", "ownerReferences": [ref], "finalizers": [finalizer] if finalizer else []}
        c.do("POST", configmaps, {"metadata": meta})
        return f"{configmaps}/{name}"

    background = family("background")
    c.send("background", "DELETE", background, {"propagationPolicy": "Background"})
    c.get("its owner is gone at once", background)
    c.until(f"{background}-child", lambda body: body is None)
    plain = family("plain")
    c.send("by default", "DELETE", plain)
    c.until(f"{plain}-child", lambda body: body is None)
    orphan = family("orphan")
    c.send("orphan", "DELETE", orphan, {"propagationPolicy": "Orphan"})
    c.until(orphan, lambda body: body is None)
    c.get("an orphan has no owner", f"{orphan}-child")
    held = family("held", "example.com/f")
    c.send("foreground, held up by the child", "DELETE", held, {"propagationPolicy": "Foreground"})
    c.until(f"{held}-child", lambda body: "deletionTimestamp" in body["metadata"])
    c.get("the owner waits", held)
    c.get("the child waits", f"{held}-child")
    c.send("the owner again", "DELETE", held)
    c.send(
        "the owner again in the background",
        "DELETE",
        held,
        {"propagationPolicy": "Background"},
        query={"dryRun": "All"},
    )
    c.do("PATCH", f"{held}-child", {"metadata": {"finalizers": None}}, MERGE)
    c.until(held, lambda body: body is None)
    jobs = f"/apis/batch/v1/namespaces/{c.ns}/jobs"
    never = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
    for policy in ("", "Background", "Foreground", "Orphan"):
        name = f"job-{policy.lower() or 'default'}"
        c.do("POST", jobs, {"metadata": {"name": name, "finalizers": ["example.com/f"]}, "spec": never})
        c.send(f"a job: {policy or 'default'}", "DELETE", f"{jobs}/{name}",
               {"propagationPolicy": policy} if policy else None,
               only=lambda body: body if body["kind"] == "Status" else body["metadata"])  # fmt: skip
        c.do("PATCH", f"{jobs}/{name}", {"metadata": {"finalizers": None}}, MERGE)


@script
def delete_finalizers(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    one = f"{configmaps}/one"
    made = {"metadata": {"name": "one", "finalizers": ["example.com/a", "example.com/b"]}, "data": {"k": "v"}}
    c.send("create", "POST", configmaps, made)
    c.send("delete", "DELETE", one)
    c.send("delete again", "DELETE", one)
    c.send("delete without grace", "DELETE", one, {"gracePeriodSeconds": 0})
    c.send("a change meanwhile", "PATCH", one, {"data": {"k": "w"}}, content_type=MERGE)
    c.send("a finalizer less", "PATCH", one, {"metadata": {"finalizers": ["example.com/b"]}}, content_type=MERGE)
    c.send("revive", "PATCH", one, {"metadata": {"deletionTimestamp": None}}, content_type=MERGE)
    c.send("create meanwhile", "POST", configmaps, {"metadata": {"name": "one"}})
    c.send("no finalizers, by PUT", "PUT", one, {"metadata": {"name": "one"}})
    c.get("gone", one)
    node = "/api/v1/nodes/delete-finalizers-1"
    c.do("POST", "/api/v1/nodes", {"metadata": {"name": "delete-finalizers-1", "finalizers": ["example.com/a"]}})
    c.send("a node", "DELETE", node, only=lambda body: body["metadata"])
    c.send("a node's finalizer by way of its status", "PATCH", f"{node}/status", {"metadata": {"finalizers": None}},
           content_type=MERGE, only=lambda body: body["metadata"])  # fmt: skip
    c.get("the node afterwards", node, only=lambda body: body["metadata"] if body["kind"] == "Node" else body)


@script
def delete_collections(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "1"}), ("c", {"x": "2"}), ("d", {}), ("e", {"x": "3"})):
        meta = {"name": name, "labels": {**labels, "ours": "yes"}}
        c.do("POST", configmaps, {"metadata": meta})
    ours = {"labelSelector": "ours"}
    c.send("by label", "DELETE", configmaps, query={"labelSelector": "x=1"})
    c.get("what is left", configmaps, ours)
    c.send("by field", "DELETE", configmaps, query={"fieldSelector": "metadata.name=c"})
    c.send("nothing matches", "DELETE", configmaps, query={"labelSelector": "x=9"})
    c.send("with a wrong precondition", "DELETE", configmaps, {"preconditions": {"uid": NOBODY}}, query=ours)
    c.send("with a limit", "DELETE", configmaps, query={**ours, "limit": "1"})
    c.get("after a limit", configmaps, ours)
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    for name in ("p", "q"):
        c.do("POST", pods, {"metadata": {"name": name}, "spec": {**POD, "nodeName": "delete-collections-1"}})
    c.do("POST", pods, {"metadata": {"name": "r"}, "spec": POD})
    c.send("pods", "DELETE", pods, only=_names)
    c.get("pods afterwards", pods, only=_names)
    c.send("pods without grace", "DELETE", pods, {"gracePeriodSeconds": 0}, only=_names)
    c.get("no pods", pods, only=_names)
    c.send(
        "with options in the query",
        "DELETE",
        configmaps,
        query={**ours, "propagationPolicy": "Foreground", "gracePeriodSeconds": "0"},
    )
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases"
    c.do("POST", leases, {"metadata": {"name": "l", "finalizers": ["example.com/f"]}})
    c.send("with finalizers", "DELETE", leases)
    c.do("PATCH", f"{leases}/l", {"metadata": {"finalizers": None}}, MERGE)


def _names(body: Any) -> Any:
    if body["kind"] == "Status":
        return body
    return [[item["metadata"]["name"], item["metadata"].get("deletionGracePeriodSeconds")] for item in body["items"]]


@script
def delete_namespaces(c: Client) -> None:
    held = c.namespace("delete-namespaces-1")
    path = f"/api/v1/namespaces/{held}"
    c.do("POST", f"{path}/configmaps", {"metadata": {"name": "held", "finalizers": ["example.com/f"]}})
    c.send("delete", "DELETE", path)

    c.until(f"{path}/configmaps/held", lambda body: "deletionTimestamp" in body["metadata"])
    c.until(f"{path}/serviceaccounts/default", lambda body: body is None)
    c.get("what holds it", f"{path}/configmaps/held")
    c.send("create meanwhile", "POST", f"{path}/configmaps", {"metadata": {"name": "new"}})
    c.send("create the namespace meanwhile", "POST", "/api/v1/namespaces", {"metadata": {"name": held}})
    c.do("PATCH", f"{path}/configmaps/held", {"metadata": {"finalizers": None}}, MERGE)
    c.until(path, lambda body: body is None)
    c.get("gone", path)
    c.get("nothing is listed", f"{path}/configmaps")
    c.send("delete what is gone", "DELETE", path)
    for name in ("default", "kube-system", "kube-public"):
        c.send(f"delete {name}", "DELETE", f"/api/v1/namespaces/{name}")
    c.send("delete with another uid", "DELETE", f"/api/v1/namespaces/{c.ns}", {"preconditions": {"uid": NOBODY}})
    c.send("delete, dry", "DELETE", f"/api/v1/namespaces/{c.ns}", query={"dryRun": "All"})
    c.get("still active", f"/api/v1/namespaces/{c.ns}")
    own = "/api/v1/namespaces/delete-namespaces-2"
    c.do("POST", "/api/v1/namespaces", {"metadata": {"name": "delete-namespaces-2", "finalizers": ["example.com/f"]}})
    c.send("finalizers of its own", "DELETE", own)
    c.until(own, lambda body: not body["spec"].get("finalizers"))
    c.get("only its own finalizer is left", own, only=lambda body: body["spec"])
    c.send(
        "its own finalizer goes",
        "PATCH",
        own,
        {"metadata": {"finalizers": None}},
        content_type=MERGE,
        only=lambda body: body["spec"],
    )
    c.get("it is gone", own)
