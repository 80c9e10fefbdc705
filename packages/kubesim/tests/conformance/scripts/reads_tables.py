"""Tables: what kubectl prints of each kind."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import MERGE, Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
# Long ago, so that ages in tables are ages whenever the script runs.
START, END = "2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z"
_POD = {"containers": [{"name": "main", "image": "busybox:1"}, {"name": "side", "image": "busybox:2"}]}
_TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {**_POD, "nodeSelector": {"gpu": "yes"}}}
_SELECTOR = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}


@script
def table_forms(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    by_label = {"labelSelector": "ours"}
    for name in ("one", "two"):
        c.do("POST", configmaps, {"metadata": {"name": name, "labels": {"ours": "yes"}}, "data": {"k": "v", "l": "w"}})
    c.get("a list", configmaps, by_label, headers=TABLE)
    c.get("an object", f"{configmaps}/one", headers=TABLE)
    c.get("an empty list", configmaps, {"labelSelector": "nobody"}, headers=TABLE)
    c.get("no object", f"{configmaps}/nobody", headers=TABLE)
    for include in ("None", "Metadata", "Object", "Nonsense"):
        c.get(f"including {include}", f"{configmaps}/one", {"includeObject": include}, headers=TABLE)
    page = {**by_label, "limit": "1"}
    c.get("a page", configmaps, page, headers=TABLE)
    beta = {"Accept": "application/json;as=Table;v=v1beta1;g=meta.k8s.io"}
    c.get("the beta version", f"{configmaps}/one", headers=beta)
    made = {"metadata": {"name": "three"}}
    c.send("of what was created", "POST", configmaps, made, headers=TABLE)
    c.send("of what was deleted", "DELETE", f"{configmaps}/three", headers=TABLE)


@script
def table_of_workloads(c: Client) -> None:
    apps, batch = f"/apis/apps/v1/namespaces/{c.ns}", f"/apis/batch/v1/namespaces/{c.ns}"
    job = {"metadata": {}, "spec": {**_POD, "restartPolicy": "Never"}}
    none = {"includeObject": "None"}
    complete = [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]
    failed = [{"type": "FailureTarget", "status": "True"}, {"type": "Failed", "status": "True"}]
    for name, spec, status in (
        ("running", {}, {"startTime": START, "active": 1}),
        ("many", {"parallelism": 2, "completions": 5}, {"startTime": START, "succeeded": 2}),
        ("queue", {"parallelism": 2}, {"startTime": START}),
        ("complete", {}, {"startTime": START, "completionTime": END, "succeeded": 1, "conditions": complete}),
        ("failed", {}, {"startTime": START, "failed": 1, "conditions": failed}),
        ("suspended", {"suspend": True}, {"conditions": [{"type": "Suspended", "status": "True"}]}),
    ):
        c.do("POST", f"{batch}/jobs", {"metadata": {"name": name}, "spec": {"template": job, **spec}})
        c.do("PATCH", f"{batch}/jobs/{name}/status", {"status": status}, MERGE)
    c.get(
        "jobs",
        f"{batch}/jobs",
        {
            **none,
            "fieldSelector": "metadata.name!=running,metadata.name!=many,metadata.name!=queue,metadata.name!=failed",
        },
        headers=TABLE,
    )
    c.get(
        "jobs that run",
        f"{batch}/jobs",
        none,
        headers=TABLE,
        only=lambda table: [row["cells"][:3] for row in table["rows"]],
    )
    common = {"selector": _SELECTOR, "template": _TEMPLATE}
    c.do("POST", f"{apps}/daemonsets", {"metadata": {"name": "d"}, "spec": common})
    numbers = {
        "desiredNumberScheduled": 5,
        "currentNumberScheduled": 4,
        "numberReady": 3,
        "updatedNumberScheduled": 2,
        "numberAvailable": 1,
        "numberMisscheduled": 0,
    }
    c.do("PATCH", f"{apps}/daemonsets/d/status", {"status": numbers}, MERGE)
    c.get("daemonsets", f"{apps}/daemonsets", none, headers=TABLE)


@script
def table_of_small_things(c: Client) -> None:
    space, none = f"/api/v1/namespaces/{c.ns}", {"includeObject": "None"}

    def show(step: str, path: str, **query: str) -> None:
        c.get(step, path, {**none, **query}, headers=TABLE)

    about = {"kind": "Pod", "namespace": c.ns, "name": "p", "fieldPath": "spec.containers{main}"}
    event = {
        "metadata": {"name": "a"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "Why",
        "message": " said \n",
        "source": {"component": "kubelet", "host": "n"},
        "firstTimestamp": START,
        "lastTimestamp": END,
        "count": 4,
    }
    c.do("POST", f"{space}/events", event)
    newer = {
        "metadata": {"name": "b"},
        "involvedObject": {"kind": "Node", "name": "n", "namespace": c.ns},
        "reportingComponent": "example.com/us",
        "reportingInstance": "us-1",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "Did",
        "type": "Normal",
        "reason": "So",
        "series": {"count": 9, "lastObservedTime": "2026-01-01T00:01:00.000000Z"},
    }
    c.do("POST", f"{space}/events", newer)
    show("events", f"{space}/events")
    leases, spec = f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases", {"holderIdentity": "me"}
    c.do("POST", leases, {"metadata": {"name": "l"}, "spec": {**spec, "leaseDurationSeconds": 9}})
    c.do("POST", leases, {"metadata": {"name": "m"}})
    show("leases", leases)
    pdbs = f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets"
    for name, spec in {"a": {"minAvailable": 1}, "b": {"maxUnavailable": "50%"}}.items():
        c.do("POST", pdbs, {"metadata": {"name": name}, "spec": {**spec, "selector": _SELECTOR}})
    show("poddisruptionbudgets", pdbs)
    secret = {"metadata": {"name": "s"}, "type": "example.com/x", "data": {"a": "", "b": ""}}
    c.do("POST", f"{space}/secrets", secret)
    show("secrets", f"{space}/secrets")
    show("serviceaccounts", f"{space}/serviceaccounts")
    show("configmaps", f"{space}/configmaps")


@script
def table_of_namespaces(c: Client) -> None:
    mine = {"script": "table-of-namespaces"}
    c.do("PATCH", f"/api/v1/namespaces/{c.ns}", {"metadata": {"labels": mine}}, MERGE)
    query = {"includeObject": "None", "labelSelector": "script=table-of-namespaces"}
    c.get("namespaces", "/api/v1/namespaces", query, headers=TABLE)
