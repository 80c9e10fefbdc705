"""PUT: optimistic locking, what each endpoint writes, generations, no-ops, and PUTs that create."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import MERGE, Client
from tests.kubesim.conformance.scripts import script
from tests.kubesim.conformance.scripts.write_parts import why_not

Json = dict[str, Any]


@script
def update_versions(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    one = f"{configmaps}/one"
    first = c.send("create", "POST", configmaps, {"metadata": {"name": "one"}, "data": {"k": "1"}})
    c.send(
        "with the version", "PUT", one, {"metadata": {"name": "one", "resourceVersion": first.rv}, "data": {"k": "2"}}
    )
    stale = {"metadata": {"name": "one", "resourceVersion": first.rv}, "data": {"k": "3"}}
    c.send("with an old version", "PUT", one, stale)
    c.send("without a version", "PUT", one, {"metadata": {"name": "one"}, "data": {"k": "4"}})
    c.send("without a change", "PUT", one, {"metadata": {"name": "one"}, "data": {"k": "4"}})
    c.send("version 0", "PUT", one, {"metadata": {"name": "one", "resourceVersion": "0"}, "data": {"k": "5"}})
    c.send("a malformed version", "PUT", one, {"metadata": {"name": "one", "resourceVersion": "abc"}, "data": {}})
    future = {"metadata": {"name": "one", "resourceVersion": "999999999"}, "data": {}}
    c.send("a version to come", "PUT", one, future)
    c.send("what is not there", "PUT", f"{configmaps}/two", {"metadata": {"name": "two"}})
    c.send(
        "what is not there, with a version",
        "PUT",
        f"{configmaps}/two",
        {"metadata": {"name": "two", "resourceVersion": "1"}},
    )
    c.send("what is not there, with a uid", "PUT", f"{configmaps}/two", {
        "metadata": {"name": "two", "uid": "11111111-2222-3333-4444-555555555555"}})  # fmt: skip
    c.send("everything dropped", "PUT", one, {"metadata": {"name": "one"}})
    c.send(
        "in a missing namespace",
        "PUT",
        "/api/v1/namespaces/update-versions-none/configmaps/one",
        {"metadata": {"name": "one"}},
    )


@script
def update_needs_versions(c: Client) -> None:
    containers = [{"name": "c", "image": "i"}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}
    core = f"/api/v1/namespaces/{c.ns}"
    never = {"template": {"spec": {"containers": containers, "restartPolicy": "Never"}}}
    for path, spec in (
        (f"{core}/secrets", {}),
        (f"{core}/serviceaccounts", {}),
        (f"{core}/pods", {"spec": {"containers": containers}}),
        (f"{core}/events", {"involvedObject": {"namespace": c.ns}}),
        ("/api/v1/nodes", {}),
        ("/api/v1/namespaces", {}),
        (f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases", {}),
        (f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets", {}),
        (
            f"/apis/apps/v1/namespaces/{c.ns}/daemonsets",
            {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}},
        ),
        (f"/apis/batch/v1/namespaces/{c.ns}/jobs", {"spec": never}),
        (f"{rbac}/namespaces/{c.ns}/roles", {}),
        (f"{rbac}/namespaces/{c.ns}/rolebindings", {"roleRef": role}),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", {"value": 1}),
    ):
        kind = path.rpartition("/")[2]
        name = f"update-needs-versions-{kind}"
        c.send(
            f"{kind}: PUT of what is not there",
            "PUT",
            f"{path}/{name}",
            {"metadata": {"name": name}, **spec},
            only=_answered,
        )
        if c.exchanges[-1]["response"]["status"] == 404:
            c.do("POST", path, {"metadata": {"name": name}, **spec})
        found = c.do("GET", f"{path}/{name}")
        del found["metadata"]["resourceVersion"]
        found["metadata"]["labels"] = {**found["metadata"].get("labels", {}), "a": "b"}
        c.send(f"{kind}: PUT without a version", "PUT", f"{path}/{name}", found, only=_answered)
        c.exchanges[-1]["request"].pop("body")


def _answered(body: Any) -> Any:
    return body if body["kind"] == "Status" else sorted(body["metadata"])


@script
def update_parts(c: Client) -> None:
    nodes = "/api/v1/nodes"
    c.do("POST", nodes, {"metadata": {"name": "update-parts-1"}})
    node = f"{nodes}/update-parts-1"
    both = {"metadata": {"name": "update-parts-1", "labels": {"by": "main"}},
            "spec": {"unschedulable": True, "podCIDR": "10.1.0.0/24"},
            "status": {"capacity": {"cpu": "1"}}}  # fmt: skip
    c.send("a node", "PUT", node, both)
    both["metadata"]["labels"] = {"by": "status"}
    both["metadata"]["annotations"] = {"by": "status"}
    both["metadata"]["finalizers"] = ["example.com/f"]
    both["spec"] = {}
    c.send("a node's status", "PUT", f"{node}/status", both)
    c.do("PATCH", node, {"metadata": {"finalizers": None}}, MERGE)
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "update-parts-1"},
    }
    c.do("POST", pods, pod)
    c.send("a pod's status by the pod", "PATCH", f"{pods}/p", {"status": {"phase": "Running"}}, content_type=MERGE)
    found = c.do("GET", f"{pods}/p")
    del found["metadata"]["creationTimestamp"], found["metadata"]["managedFields"]
    found["metadata"]["labels"] = {"by": "status"}
    found["spec"]["containers"][0]["image"] = "other"
    found["status"] = {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                       "conditions": [{"type": "Ready", "status": "True"}]}  # fmt: skip
    c.send("a pod's status", "PUT", f"{pods}/p/status", found)
    found["status"] = {"phase": "Succeeded"}
    c.send("a pod's status with an old version", "PUT", f"{pods}/p/status", found)
    c.send("a status of nothing", "PUT", f"{pods}/q/status", {**found, "metadata": {"name": "q"}})
    c.get("a pod's status, read", f"{pods}/p/status")
    jobs = f"/apis/batch/v1/namespaces/{c.ns}/jobs"
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    c.do("POST", jobs, {"metadata": {"name": "j"}, "spec": {"template": template}})
    c.send("a job's status", "PATCH", f"{jobs}/j/status", {"spec": {"parallelism": 5}, "status": {"active": 1}},
           content_type=MERGE, only=_generation)  # fmt: skip
    c.send(
        "a job's status by the job",
        "PATCH",
        f"{jobs}/j",
        {"status": {"active": 2}},
        content_type=MERGE,
        only=_generation,
    )


def _generation(body: Any) -> Any:
    return {"generation": body["metadata"].get("generation"),
            "status": body.get("status"), "spec": {key: body["spec"].get(key) for key in ("parallelism", "replicas",
                                                                                          "suspend")},
            "resourceVersion": body["metadata"]["resourceVersion"]}  # fmt: skip


@script
def update_generations(c: Client) -> None:
    containers = [{"name": "c", "image": "i"}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    selected = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    never = {"template": {"spec": {"containers": containers, "restartPolicy": "Never"}}}
    for path, body, change in (
        (f"/apis/apps/v1/namespaces/{c.ns}/daemonsets", {"spec": selected}, {"spec": {"minReadySeconds": 5}}),
        (f"/apis/batch/v1/namespaces/{c.ns}/jobs", {"spec": never}, {"spec": {"suspend": True}}),
        (f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets", {"spec": {"minAvailable": 1}},
         {"spec": {"minAvailable": 2}}),
        (f"/api/v1/namespaces/{c.ns}/pods", {"spec": {"containers": containers}},
         {"spec": {"activeDeadlineSeconds": 9}}),
        ("/api/v1/nodes", {}, {"spec": {"unschedulable": True}}),
        (f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases", {}, {"spec": {"holderIdentity": "me"}}),
    ):  # fmt: skip
        kind = path.rpartition("/")[2]
        one = f"{path}/update-generations"

        def generation(body: Any) -> Any:
            meta = {key: body["metadata"].get(key) for key in ("generation", "resourceVersion")}
            return {"metadata": meta, "observed": (body.get("status") or {}).get("observedGeneration")}

        c.send(f"{kind}: created", "POST", path, {"metadata": {"name": "update-generations"}, **body}, only=generation)
        c.send(f"{kind}: spec", "PATCH", one, change, content_type=MERGE, only=generation)
        c.send(f"{kind}: nothing", "PATCH", one, change, content_type=MERGE, only=generation)
        c.send(
            f"{kind}: labels", "PATCH", one, {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE, only=generation
        )


@script
def update_events(c: Client) -> None:
    """What event recorders do: create, then patch the count."""
    events = f"/api/v1/namespaces/{c.ns}/events"
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": c.ns, "name": "p"}, "count": 1,
             "reason": "Why", "message": "So.", "type": "Normal", "source": {"component": "me"},
             "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z"}  # fmt: skip
    c.do("POST", events, event)
    c.send("counted", "PATCH", f"{events}/e", {"count": 2, "lastTimestamp": "2026-01-02T03:05:00Z"},
           content_type="application/strategic-merge-patch+json")  # fmt: skip
    c.send(
        "counted what is gone",
        "PATCH",
        f"{events}/f",
        {"count": 2},
        content_type="application/strategic-merge-patch+json",
    )


@script
def update_leases(c: Client) -> None:
    """What a kubelet and a leader election do."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases"
    body: Json = {"metadata": {"name": "one", "namespace": c.ns}, "spec": {
        "holderIdentity": "a", "leaseDurationSeconds": 40, "renewTime": "2026-01-02T03:04:05.000001Z"}}  # fmt: skip
    made = c.send("create", "POST", leases, body)
    body["metadata"]["resourceVersion"] = made.rv
    body["spec"]["renewTime"] = "2026-01-02T03:04:15.000001Z"
    renewed = c.send("renew", "PUT", f"{leases}/one", body)
    body["spec"]["holderIdentity"] = "b"
    c.send("a rival with the old version", "PUT", f"{leases}/one", body)
    body["metadata"]["resourceVersion"] = renewed.rv
    body["spec"] = {**body["spec"], "leaseTransitions": 1, "acquireTime": "2026-01-02T03:05:15.000001Z"}
    c.send("the rival with the version", "PUT", f"{leases}/one", body)
    del body["metadata"]["resourceVersion"]
    c.send("without a version", "PUT", f"{leases}/one", body)
    c.send("PUT creates", "PUT", f"{leases}/two", {"metadata": {"name": "two"}, "spec": {"holderIdentity": "x"}})
    c.send("a time without its fraction", "PATCH", f"{leases}/two", {"spec": {"renewTime": "2026-01-02T03:04:15Z"}},
           content_type=MERGE, only=why_not)  # fmt: skip
    c.send("a time of another zone", "PATCH", f"{leases}/two",
           {"spec": {"renewTime": "2026-01-02T05:04:15.500000+02:00"}},
           content_type=MERGE)  # fmt: skip
    c.send("a time with too short a fraction", "PATCH", f"{leases}/two",
           {"spec": {"renewTime": "2026-01-02T05:04:15.5+02:00"}},
           content_type=MERGE, only=why_not)  # fmt: skip
