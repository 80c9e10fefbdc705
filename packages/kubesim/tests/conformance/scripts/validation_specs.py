"""Refusals of specs: pods, jobs, daemonsets, nodes, budgets, leases, roles, configmaps, secrets."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import MERGE, Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]
DRY = {"dryRun": "All"}


def _short(body: Any) -> Any:
    """The refusal in full; of what is accepted only that it was."""
    return body if body["kind"] == "Status" else body["metadata"]["name"]


@script
def validation_pods(c: Client) -> None:
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    main = {"name": "main", "image": "busybox:1"}

    def refuse(step: str, containers: Any, **spec: Any) -> None:
        body = {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}
        c.send(step, "POST", pods, body, query=DRY, only=_short)

    refuse("no containers", [])
    refuse("an empty container", [{}])
    refuse("no image", [{"name": "a"}])
    refuse("no name", [{"image": "a"}])
    refuse("a wrong name", [{"name": "A_b", "image": "a"}])
    refuse("the same name twice", [main, main])
    refuse("the same name in init containers", [main], initContainers=[main])
    refuse("a restart policy", [main], restartPolicy="Sometimes")
    refuse("a deadline of 0", [main], activeDeadlineSeconds=0)
    refuse("a negative deadline", [main], activeDeadlineSeconds=-1)
    refuse("a wrong node name", [main], nodeName="A_b")
    refuse("a wrong node selector", [main], nodeSelector={"a b": "c d"})
    refuse("a wrong service account", [main], serviceAccountName="A_b")
    refuse("GPUs asked but not limited", [{**main, "resources": {"requests": {"nvidia.com/gpu": "1"}}}])
    refuse("GPUs asked and limited otherwise", [
        {**main, "resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}}])  # fmt: skip
    refuse("a fraction of a GPU", [{**main, "resources": {"limits": {"nvidia.com/gpu": "0.5"}}}])
    refuse("a negative limit", [{**main, "resources": {"limits": {"cpu": "-1"}}}])
    refuse("more asked than limited", [{**main, "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}])
    refuse("a resource that does not exist", [{**main, "resources": {"limits": {"gpu": "1"}}}])
    refuse("a variable without a name", [{**main, "env": [{"value": "v"}]}])
    refuse("a mount without a volume", [{**main, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}])
    refuse(
        "a mount without a path", [{**main, "volumeMounts": [{"name": "v"}]}], volumes=[{"name": "v", "emptyDir": {}}]
    )
    refuse("the same volume twice", [main], volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}])
    refuse("a volume without a name", [main], volumes=[{"emptyDir": {}}])
    refuse("a volume of two kinds", [main], volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/v"}}])
    refuse("a toleration's operator", [main], tolerations=[{"key": "a", "operator": "Perhaps"}])
    refuse("a toleration's effect", [main], tolerations=[{"key": "a", "operator": "Exists", "effect": "Perhaps"}])
    refuse(
        "a toleration with a value that must exist",
        [main],
        tolerations=[{"key": "a", "operator": "Exists", "value": "v"}],
    )
    refuse("a toleration without a key", [main], tolerations=[{"operator": "Equal", "value": "v"}])
    refuse("a toleration's seconds", [main], tolerations=[{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}])
    refuse("a priority of one's own", [main], priority=7)


@script
def validation_pod_updates(c: Client) -> None:
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    spec = {"containers": [{"name": "main", "image": "busybox:1"}], "terminationGracePeriodSeconds": 7,
            "schedulerName": "nobody", "tolerations": [{"key": "a", "operator": "Exists",
                                                        "effect": "NoExecute"}]}  # fmt: skip
    c.do("POST", pods, {"metadata": {"name": "p"}, "spec": spec})

    def patch(
        step: str, change: Json, content_type: str = "application/strategic-merge-patch+json", **options: Any
    ) -> None:
        c.send(step, "PATCH", f"{pods}/p", {"spec": change}, content_type=content_type, **options)

    patch("the image", {"containers": [{"name": "main", "image": "busybox:2"}]}, only=_short)
    patch("the command", {"containers": [{"name": "main", "command": ["a"]}]}, only=_without_diff)
    patch("another container", {"containers": [{"name": "more", "image": "b"}]})
    patch("a container's name", {"containers": [{"name": "renamed", "image": "b"}]}, MERGE, only=_without_diff)
    patch("the node", {"nodeName": "n"}, only=_without_diff)
    patch("the priority", {"priority": 5}, only=_without_diff)
    patch("the restart policy", {"restartPolicy": "Never"}, only=_without_diff)
    patch("the grace", {"terminationGracePeriodSeconds": 1}, only=_without_diff)
    patch("a deadline", {"activeDeadlineSeconds": 100}, only=_short)
    patch("an earlier deadline", {"activeDeadlineSeconds": 50}, only=_short)
    patch("a later deadline", {"activeDeadlineSeconds": 200})
    patch("no deadline", {"activeDeadlineSeconds": None})
    patch("no tolerations", {"tolerations": []}, MERGE)
    kept = c.do("GET", f"{pods}/p")["spec"]["tolerations"]
    patch("a toleration more", {"tolerations": [*kept, {"key": "b", "operator": "Exists"}]}, MERGE, only=_short)
    patch("a volume", {"volumes": [{"name": "more", "emptyDir": {}}]}, only=_without_diff)
    c.send("an update without a spec", "PUT", f"{pods}/p", {"metadata": {"name": "p"}})
    whole = c.do("GET", f"{pods}/p")
    whole["spec"]["nodeSelector"] = {"a": "b"}
    del whole["metadata"]["resourceVersion"], whole["metadata"]["creationTimestamp"], whole["metadata"]["managedFields"]
    c.send("an update", "PUT", f"{pods}/p", whole, only=_without_diff)
    c.send("a wrong image", "PATCH", f"{pods}/p", {"spec": {"containers": [{"name": "main", "image": ""}]}},
           content_type="application/strategic-merge-patch+json")  # fmt: skip


def _without_diff(body: Any) -> Any:
    """Refusals of pod updates end in a Go-syntax diff of the whole spec."""
    if body["kind"] != "Status":
        return body["kind"]
    message = body["message"].partition("\n")[0]
    causes = [{**cause, "message": cause["message"].partition("\n")[0]} for cause in body["details"]["causes"]]
    return {**body, "message": message, "details": {**body["details"], "causes": causes}}


@script
def validation_jobs(c: Client) -> None:
    jobs = f"/apis/batch/v1/namespaces/{c.ns}/jobs"
    containers = [{"name": "main", "image": "busybox:1"}]

    def refuse(step: str, pod: Json, **spec: Any) -> None:
        body = {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}, **spec}}
        c.send(step, "POST", jobs, body, query=DRY, only=_short)

    never = {"restartPolicy": "Never", "containers": containers}
    refuse("no restart policy", {"containers": containers})
    refuse("always restarted", {"containers": containers, "restartPolicy": "Always"})
    refuse("no containers", {"restartPolicy": "Never"})
    c.send("no template", "POST", jobs, {"metadata": {"name": "j"}, "spec": {}}, query=DRY)
    c.send("no spec", "POST", jobs, {"metadata": {"name": "j"}}, query=DRY)
    refuse("negative parallelism", never, parallelism=-1)
    refuse("negative completions", never, completions=-1)
    refuse("a negative backoff", never, backoffLimit=-1)
    refuse("a negative deadline", never, activeDeadlineSeconds=-1)
    refuse("a negative time to live", never, ttlSecondsAfterFinished=-1)
    refuse("a selector of one's own", never, selector={"matchLabels": {"a": "b"}})
    refuse("a manual selector that selects nothing", never, manualSelector=True, selector={"matchLabels": {"a": "b"}})
    c.do("POST", jobs, {"metadata": {"name": "one"}, "spec": {"template": {"spec": never}}})

    def patch(step: str, change: Json, **options: Any) -> None:
        c.send(step, "PATCH", f"{jobs}/one", {"spec": change}, content_type=MERGE, **options)

    patch("the parallelism", {"parallelism": 3}, only=_short)
    patch("the completions", {"completions": 3})
    patch("the completion mode", {"completionMode": "Indexed"})
    patch("the template", {"template": {"spec": {"restartPolicy": "OnFailure"}}}, only=_field)
    patch("the selector", {"selector": {"matchLabels": {"a": "b"}}}, only=_field)
    patch("suspension", {"suspend": True}, only=_short)
    patch("the backoff", {"backoffLimit": 1}, only=_short)


def _field(body: Any) -> Any:
    """A refusal without the Go form of the value it refuses."""
    if body["kind"] != "Status":
        return body["kind"]
    causes = [{**cause, "message": cause["message"].rpartition(": ")[2]} for cause in body["details"]["causes"]]
    message = [body["message"].partition("Invalid value")[0], body["message"].rpartition(": ")[2]]
    return {**body, "message": message, "details": {**body["details"], "causes": causes}}


@script
def validation_nodes(c: Client) -> None:
    def refuse(step: str, spec: Any) -> None:
        c.send(
            step,
            "POST",
            "/api/v1/nodes",
            {"metadata": {"name": "validation-nodes"}, "spec": spec},
            query=DRY,
            only=_short,
        )

    def taint(key: str = "a", value: str = "", effect: str = "NoSchedule") -> Json:
        return {"key": key, "value": value, "effect": effect}

    refuse("a taint without a key", {"taints": [taint("")]})
    refuse("a taint without an effect", {"taints": [{"key": "a"}]})
    refuse("a taint's effect", {"taints": [taint(effect="Perhaps")]})
    refuse("a taint's key", {"taints": [taint("a b")]})
    refuse("a taint's prefix", {"taints": [taint("A_b/c")]})
    refuse("a taint's value", {"taints": [taint(value="b c")]})
    refuse("a taint's long value", {"taints": [taint(value="b" * 64)]})
    refuse("the same taint twice", {"taints": [taint(), taint(value="b")]})
    refuse("the same key with two effects", {"taints": [taint(), taint(effect="NoExecute")]})
    node = "/api/v1/nodes/validation-nodes-1"
    c.do("POST", "/api/v1/nodes", {"metadata": {"name": "validation-nodes-1"}, "spec": {"providerID": "a"}})
    c.send("the same taint twice by patch", "PATCH", node, {"spec": {"taints": [taint(), taint()]}}, content_type=MERGE)
    negative = {"status": {"capacity": {"cpu": "-1"}}}
    c.send("a negative capacity", "PATCH", f"{node}/status", negative, content_type=MERGE)
    for resource in ("nvidia.com/gpu", "example.kubernetes.io/gpu", "pods", "cpu"):
        part = {"status": {"capacity": {resource: "1500m"}, "allocatable": {resource: "0.5"}}}
        c.send(f"a fraction of {resource}", "PATCH", f"{node}/status", part, content_type=MERGE, only=_short)


@script
def validation_others(c: Client) -> None:
    def refuse(step: str, path: str, body: Json) -> None:
        whole = {"metadata": {"name": "validation-others"}, **body}
        c.send(step, "POST", path, whole, query=DRY, only=_short)

    budgets = f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets"
    selector = {"matchLabels": {"a": "b"}}
    refuse(
        "a budget with both bounds", budgets, {"spec": {"minAvailable": 1, "maxUnavailable": 1, "selector": selector}}
    )
    refuse("a budget with a negative bound", budgets, {"spec": {"minAvailable": -1, "selector": selector}})
    refuse("a budget with a wrong share", budgets, {"spec": {"minAvailable": "110%", "selector": selector}})
    refuse("a budget with a word", budgets, {"spec": {"minAvailable": "some", "selector": selector}})
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases"
    refuse("a lease of no time", leases, {"spec": {"leaseDurationSeconds": 0}})
    refuse("a lease of negative time", leases, {"spec": {"leaseDurationSeconds": -1}})
    refuse("a lease with negative transitions", leases, {"spec": {"leaseTransitions": -1}})
    refuse("a lease of nobody", leases, {"spec": {"holderIdentity": ""}})
    events = f"/api/v1/namespaces/{c.ns}/events"
    refuse("an event elsewhere", events, {"involvedObject": {"namespace": "elsewhere"}})
    refuse("an event of a cluster's object", events, {"involvedObject": {"kind": "Node", "name": "n"}})


@script
def validation_data(c: Client) -> None:
    space = f"/api/v1/namespaces/{c.ns}"

    def refuse(step: str, plural: str, body: Json) -> None:
        c.send(step, "POST", f"{space}/{plural}", {"metadata": {"name": "d"}, **body}, query=DRY, only=_short)

    refuse("a configmap's key", "configmaps", {"data": {"a b": "c"}})
    refuse("an empty key", "configmaps", {"data": {"": "c"}})
    refuse("a key of dots", "configmaps", {"data": {"..": "c"}})
    refuse("a long key", "configmaps", {"data": {"a" * 254: "c"}})
    refuse("a key in both", "configmaps", {"data": {"a": "b"}, "binaryData": {"a": "AA=="}})
    refuse("a secret's key", "secrets", {"data": {"a b": "AA=="}})
    refuse("a secret that is no base64", "secrets", {"data": {"a": "?"}})
    for plural, changed in (("configmaps", {"a": "c"}), ("secrets", {"a": "Yw=="})):
        c.do("POST", f"{space}/{plural}", {"metadata": {"name": "frozen"}, "data": {"a": "Yg=="}, "immutable": True})
        frozen = f"{space}/{plural}/frozen"
        c.send(f"frozen {plural}: data", "PATCH", frozen, {"data": changed}, content_type=MERGE)
        c.send(f"frozen {plural}: thawed", "PATCH", frozen, {"immutable": False}, content_type=MERGE)
        c.send(f"frozen {plural}: unset", "PATCH", frozen, {"immutable": None}, content_type=MERGE)
        c.send(f"frozen {plural}: labels", "PATCH", frozen, {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
