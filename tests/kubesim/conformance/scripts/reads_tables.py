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
    c.get("as YAML", f"{configmaps}/one", headers={"Accept": "application/yaml;as=Table;v=v1;g=meta.k8s.io"})
    c.get(
        "as protobuf",
        f"{configmaps}/one",
        headers={"Accept": "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"},
    )
    made = {"metadata": {"name": "three"}}
    c.send("of what was created", "POST", configmaps, made, headers=TABLE)
    c.send("of what was deleted", "DELETE", f"{configmaps}/three", headers=TABLE)


@script
def table_of_workloads(c: Client) -> None:
    apps, batch = f"/apis/apps/v1/namespaces/{c.ns}", f"/apis/batch/v1/namespaces/{c.ns}"
    job = {"metadata": {}, "spec": {**_POD, "restartPolicy": "Never"}}
    counts = {"replicas": 3, "readyReplicas": 2, "availableReplicas": 1}
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
    c.do("POST", f"{apps}/deployments", {"metadata": {"name": "d"}, "spec": {**common, "replicas": 4}})
    c.do("PATCH", f"{apps}/deployments/d/status", {"status": {**counts, "updatedReplicas": 2}}, MERGE)
    c.get("deployments", f"{apps}/deployments", none, headers=TABLE)
    c.do("POST", f"{apps}/replicasets", {"metadata": {"name": "r"}, "spec": {**common, "replicas": 4}})
    c.do("PATCH", f"{apps}/replicasets/r/status", {"status": counts}, MERGE)
    c.get("replicasets", f"{apps}/replicasets", none, headers=TABLE)
    c.do(
        "POST",
        f"{apps}/statefulsets",
        {"metadata": {"name": "s"}, "spec": {**common, "serviceName": "s", "replicas": 4}},
    )
    c.do("PATCH", f"{apps}/statefulsets/s/status", {"status": counts}, MERGE)
    c.get("statefulsets", f"{apps}/statefulsets", none, headers=TABLE)
    cron = {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": job}}}
    c.do("POST", f"{batch}/cronjobs", {"metadata": {"name": "c"}, "spec": cron})
    c.do(
        "POST",
        f"{batch}/cronjobs",
        {"metadata": {"name": "z"}, "spec": {**cron, "suspend": True, "timeZone": "Etc/UTC"}},
    )
    c.do("PATCH", f"{batch}/cronjobs/z/status", {"status": {"lastScheduleTime": START}}, MERGE)
    c.get("cronjobs", f"{batch}/cronjobs", none, headers=TABLE)
    revision = {"metadata": {"name": "r"}, "revision": 3, "data": {"a": "b"}}
    c.do("POST", f"{apps}/controllerrevisions", revision)
    c.get("controllerrevisions", f"{apps}/controllerrevisions", none, headers=TABLE)


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
    show("events of the newer group", f"/apis/events.k8s.io/v1/namespaces/{c.ns}/events")
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
    ports = [{"port": 80, "name": "a"}, {"port": 53, "protocol": "UDP", "name": "b", "nodePort": 0}]
    c.do(
        "POST",
        f"{space}/services",
        {"metadata": {"name": "headless"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}},
    )
    named = {"type": "ExternalName", "externalName": "example.com", "ports": ports}
    c.do("POST", f"{space}/services", {"metadata": {"name": "named"}, "spec": named})
    show("services", f"{space}/services")
    subsets = [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "ports": [{"port": 80}]}]
    c.do("POST", f"{space}/endpoints", {"metadata": {"name": "e"}, "subsets": subsets})
    show("endpoints", f"{space}/endpoints")
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{c.ns}/endpointslices"
    part = {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"port": 80, "name": "", "protocol": "TCP"}],
    }
    c.do("POST", slices, {"metadata": {"name": "e"}, **part})
    show("endpointslices", slices)
    c.do("POST", f"{space}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Pod"}]}})
    show("limitranges", f"{space}/limitranges")
    c.do("POST", f"{space}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}})
    show("resourcequotas", f"{space}/resourcequotas")
    c.do("POST", f"{space}/podtemplates", {"metadata": {"name": "t"}, "template": _TEMPLATE})
    show("podtemplates", f"{space}/podtemplates")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "x"}
    c.do("POST", f"{space}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": claim})
    show("persistentvolumeclaims", f"{space}/persistentvolumeclaims")


@script
def table_of_cluster_things(c: Client) -> None:
    rbac, mine = "/apis/rbac.authorization.k8s.io/v1", {"script": "table-of-cluster-things"}
    named = {"name": "table-of-cluster-things", "labels": mine}

    def show(step: str, path: str) -> None:
        query = {"includeObject": "None", "labelSelector": "script=table-of-cluster-things"}
        c.get(step, path, query, headers=TABLE)

    c.do("PATCH", f"/api/v1/namespaces/{c.ns}", {"metadata": {"labels": mine}}, MERGE)
    show("namespaces", "/api/v1/namespaces")
    subjects = [
        {"kind": "User", "name": "u"},
        {"kind": "Group", "name": "g"},
        {"kind": "User", "name": "v"},
        {"kind": "ServiceAccount", "name": "s", "namespace": c.ns},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    for path in (rbac, f"{rbac}/namespaces/{c.ns}"):
        prefix = "cluster" if path == rbac else ""
        c.do("POST", f"{path}/{prefix}roles", {"metadata": named, "rules": []})
        c.do("POST", f"{path}/{prefix}rolebindings", {"metadata": named, "roleRef": role, "subjects": subjects})
        show(f"{prefix}roles", f"{path}/{prefix}roles")
        show(f"{prefix}rolebindings", f"{path}/{prefix}rolebindings")
    for path, more in {
        "/apis/scheduling.k8s.io/v1/priorityclasses": {"value": 7, "description": "d"},
        "/apis/storage.k8s.io/v1/storageclasses": {"provisioner": "example.com/p"},
        "/apis/storage.k8s.io/v1/csinodes": {"spec": {"drivers": [{"name": "d.example.com", "nodeID": "n"}]}},
        "/apis/resource.k8s.io/v1/deviceclasses": {"spec": {}},
        "/apis/resource.k8s.io/v1/resourceslices": {
            "spec": {
                "driver": "example.com",
                "nodeName": "n",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            }
        },
        f"/apis/resource.k8s.io/v1/namespaces/{c.ns}/resourceclaims": {"spec": {}},
        f"/apis/resource.k8s.io/v1/namespaces/{c.ns}/resourceclaimtemplates": {"spec": {"spec": {}}},
        "/api/v1/persistentvolumes": {
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp"}}
        },
    }.items():
        c.do("POST", path, {"metadata": named, **more})
        show(path.rpartition("/")[2], path)
