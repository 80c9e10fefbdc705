"""Label and field selectors: every operator, every supported field, and how malformed ones are refused."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import Client
from tests.kubesim.conformance.scripts import script


def _names(body: Any) -> Any:
    """Return the names in a list, or the code of a refusal."""
    return [item["metadata"]["name"] for item in body["items"]] if "items" in body else body["code"]


@script
def label_selectors(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    for name, labels in {
        "a": {"half": "low", "n": "1"},
        "b": {"half": "low", "n": "2"},
        "c": {"half": "high", "n": "10"},
        "d": {"half": "", "n": "many"},
        "e": {"example.com/half": "low"},
    }.items():
        c.do("POST", configmaps, {"metadata": {"name": name, "labels": {**labels, "ours": "yes"}}})
    for selector in (
        "half=low",
        "half==low",
        "half!=low",
        "half",
        "!half",
        "half=",
        "half in (low,high)",
        "half in (low, )",
        "half notin (low)",
        "half in (low),n notin (2)",
        "n>1",
        "n<10",
        "n>1,n<10",
        " half = low , n = 1 ",
        "example.com/half=low",
        "half in (low),half in (high)",
        "",
    ):
        wanted = f"{selector},ours" if selector else "ours"
        c.get(f"selected by {selector!r}", configmaps, {"labelSelector": wanted}, only=_names)
    for selector in (
        "a=b=c",
        "a in b",
        "a in (b",
        "a in ()",
        "=b",
        "a,,b",
        ",",
        "a b",
        "a notin",
        "!a=b",
        "a>b",
        "a<1.5",
        "a>",
        "-a=b",
        "a=-b",
        "a/b/c=d",
        "A B=c",
        "a in (b))",
        "a=(b)",
        f"a={'x' * 64}",
        f"{'x' * 64}=a",
        "UPPER.Example/x=y",
        "!",
        "a!",
        "a=b,",
        "a!b",
        "a===b",
        "a in (-b)",
        "a<-1",
        "half in",
    ):
        c.get(f"malformed {selector!r}", configmaps, {"labelSelector": selector}, only=_names)


@script
def field_selectors(c: Client) -> None:
    space = f"/api/v1/namespaces/{c.ns}"
    containers = [{"name": "main", "image": "busybox:1"}]
    for name, spec in {
        "bound": {"nodeName": "field-selectors-1", "restartPolicy": "Never"},
        "free": {"schedulerName": "other"},
        "host": {"hostNetwork": True},
    }.items():
        c.do("POST", f"{space}/pods", {"metadata": {"name": name}, "spec": {"containers": containers, **spec}})
    status = {"status": {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]}}
    c.do("PATCH", f"{space}/pods/bound/status", status, "application/merge-patch+json")
    for selector in (
        "metadata.name=bound",
        "metadata.name!=bound",
        "metadata.name==bound",
        f"metadata.namespace={c.ns}",
        "spec.nodeName=field-selectors-1",
        "spec.nodeName=",
        "spec.nodeName!=",
        "status.phase=Running",
        "status.phase!=Running",
        "spec.restartPolicy=Never",
        "spec.schedulerName=other",
        "spec.hostNetwork=true",
        "spec.hostNetwork=false",
        "spec.serviceAccountName=default",
        "status.podIP=10.0.0.7",
        "status.podIPs=10.0.0.7",
        "status.nominatedNodeName=",
        "metadata.name=bound,status.phase=Running",
        "metadata.name=bound,metadata.name=free",
    ):
        c.get(f"pods selected by {selector!r}", f"{space}/pods", {"fieldSelector": selector}, only=_names)
    for selector in (
        "spec.containers=x",
        "metadata.labels=x",
        "metadata.uid=x",
        "nonsense",
        "metadata.name",
        "a=b=c",
        "metadata.name>x",
        "metadata.name in (a)",
        ",",
        "metadata.name=a,",
        "=a",
        "metadata.name=a\\x",
        "spec.NodeName=x",
    ):
        c.get(f"pods refused by {selector!r}", f"{space}/pods", {"fieldSelector": selector}, only=_names)
    c.get("configmaps by data", f"{space}/configmaps", {"fieldSelector": "data.k=v"}, only=_names)
    c.get("configmaps by name", f"{space}/configmaps", {"fieldSelector": "metadata.name=nobody"})
    c.get(
        "leases by holder",
        f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases",
        {"fieldSelector": "spec.x=v"},
        only=_names,
    )
    c.get(
        "by label and field", f"{space}/pods", {"labelSelector": "!a", "fieldSelector": "spec.nodeName="}, only=_names
    )


@script
def field_selectors_by_kind(c: Client) -> None:
    space = f"/api/v1/namespaces/{c.ns}"
    mine = {"labels": {"script": "field-selectors"}}
    c.do("POST", "/api/v1/nodes", {"metadata": {"name": "field-selectors-2", **mine}})
    c.do("POST", "/api/v1/nodes", {"metadata": {"name": "field-selectors-3", **mine}, "spec": {"unschedulable": True}})
    event = {
        "metadata": {"name": "e"},
        "reason": "Why",
        "type": "Warning",
        "source": {"component": "me"},
        "reportingComponent": "us",
        "reportingInstance": "us-1",
        "involvedObject": {
            "kind": "Pod",
            "namespace": c.ns,
            "name": "p",
            "uid": "u",
            "apiVersion": "v1",
            "fieldPath": "spec.x",
        },
    }
    c.do("POST", f"{space}/events", event)
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    jobs = f"/apis/batch/v1/namespaces/{c.ns}/jobs"
    c.do("POST", jobs, {"metadata": {"name": "j"}, "spec": {"template": template}})
    c.do("POST", f"{space}/secrets", {"metadata": {"name": "s"}, "type": "example.com/kind"})
    by_label = {"labelSelector": "script=field-selectors"}
    for path, selectors in {
        "/api/v1/nodes": (
            "spec.unschedulable=true",
            "spec.unschedulable=false",
            "spec.podCIDR=x",
            "spec.unschedulable!=true",
        ),
        f"{space}/events": (
            "involvedObject.kind=Pod",
            f"involvedObject.namespace={c.ns}",
            "involvedObject.name=p",
            "involvedObject.uid=u",
            "involvedObject.apiVersion=v1",
            "involvedObject.fieldPath=spec.x",
            "involvedObject.resourceVersion=",
            "reason=Why",
            "reportingComponent=us",
            "source=me",
            "type=Warning",
            "type=Normal",
            "message=x",
            "regarding.name=p",
        ),
        jobs: ("status.successful=0", "status.successful=1", "status.succeeded=0", "metadata.name=j"),
        f"{space}/secrets": ("type=example.com/kind", "type=Opaque"),
        f"/apis/apps/v1/namespaces/{c.ns}/daemonsets": ("status.x=0", "metadata.name=d"),
        f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets": ("spec.minAvailable=1",),
        "/api/v1/namespaces": ("status.phase=Nonsense", f"metadata.name={c.ns},status.phase=Active", "name=x"),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles": ("metadata.name=cluster-admin", "rules=x"),
        "/apis/scheduling.k8s.io/v1/priorityclasses": ("value=1",),
    }.items():
        for selector in selectors:
            query = {"fieldSelector": selector, **(by_label if path == "/api/v1/nodes" else {})}
            c.get(f"{path.removeprefix('/api')}: {selector}", path, query, only=_names)
