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

    c.send("no spec", "POST", pods, {"metadata": {"name": "p"}}, query=DRY)
    refuse("no containers", [])
    refuse("an empty container", [{}])
    refuse("no image", [{"name": "a"}])
    refuse("no name", [{"image": "a"}])
    refuse("a wrong name", [{"name": "A_b", "image": "a"}])
    refuse("an image with spaces", [{"name": "a", "image": " a "}])
    refuse("the same name twice", [main, main])
    refuse("the same name in init containers", [main], initContainers=[main])
    refuse("a restart policy", [main], restartPolicy="Sometimes")
    refuse("a pull policy", [{**main, "imagePullPolicy": "Perhaps"}])
    refuse("a DNS policy", [main], dnsPolicy="Perhaps")
    refuse("a negative grace", [main], terminationGracePeriodSeconds=-1)
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
    refuse("a port that is none", [{**main, "ports": [{"containerPort": 0}, {"containerPort": 65536}]}])
    refuse("a wrong protocol", [{**main, "ports": [{"containerPort": 1, "protocol": "IPX"}]}])
    refuse("a variable without a name", [{**main, "env": [{"value": "v"}]}])
    refuse("a variable with two values", [
        {**main, "env": [{"name": "A", "value": "v",
                          "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}])  # fmt: skip
    refuse("a variable from a wrong field", [
        {**main, "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nonsense"}}}]}])  # fmt: skip
    refuse("a mount without a volume", [{**main, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}])
    refuse(
        "a mount without a path", [{**main, "volumeMounts": [{"name": "v"}]}], volumes=[{"name": "v", "emptyDir": {}}]
    )
    refuse("the same volume twice", [main], volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}])
    refuse("a volume without a name", [main], volumes=[{"emptyDir": {}}])
    refuse("a volume of two kinds", [main], volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/v"}}])
    refuse("a host path upwards", [main], volumes=[{"name": "v", "hostPath": {"path": "/a/../b"}}])
    refuse("a configmap without a name", [main], volumes=[{"name": "v", "configMap": {}}])
    refuse("a toleration's operator", [main], tolerations=[{"key": "a", "operator": "Perhaps"}])
    refuse("a toleration's effect", [main], tolerations=[{"key": "a", "operator": "Exists", "effect": "Perhaps"}])
    refuse(
        "a toleration with a value that must exist",
        [main],
        tolerations=[{"key": "a", "operator": "Exists", "value": "v"}],
    )
    refuse("a toleration without a key", [main], tolerations=[{"operator": "Equal", "value": "v"}])
    refuse("a toleration's seconds", [main], tolerations=[{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}])
    refuse("a probe without a handler", [{**main, "readinessProbe": {"periodSeconds": 1}}])
    refuse("a probe with two handlers", [
        {**main, "readinessProbe": {"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}}])  # fmt: skip
    refuse("a probe with negative seconds", [
        {**main, "readinessProbe": {"exec": {"command": ["a"]}, "periodSeconds": -1,
                                    "timeoutSeconds": -1}}])  # fmt: skip
    refuse("a liveness probe that must succeed twice", [
        {**main, "livenessProbe": {"exec": {"command": ["a"]}, "successThreshold": 2}}])  # fmt: skip
    refuse("a scheduler's wrong name", [main], schedulerName="A_b")
    refuse("a hostname", [main], hostname="A_b")
    refuse("a priority of one's own", [main], priority=7)
    refuse(
        "host ports without the host's network",
        [{**main, "ports": [{"containerPort": 1, "hostPort": 2}]}],
        hostNetwork=True,
    )
    refuse("a gate and a node", [main], nodeName="n", schedulingGates=[{"name": "example.com/g"}])
    refuse("many mistakes", [{"name": "A"}, {"image": "b", "imagePullPolicy": "x"}], restartPolicy="y", nodeName="Z")


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
    refuse("a completion mode", never, completionMode="Perhaps")
    refuse("indexed without completions", never, completionMode="Indexed")
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
    cronjobs = f"/apis/batch/v1/namespaces/{c.ns}/cronjobs"
    template = {"spec": {"template": {"spec": never}}}
    c.send(
        "a cron job without a schedule",
        "POST",
        cronjobs,
        {"metadata": {"name": "c"}, "spec": {"jobTemplate": template}},
    )
    c.send("a wrong schedule", "POST", cronjobs, {
        "metadata": {"name": "c"}, "spec": {"schedule": "often", "jobTemplate": template}})  # fmt: skip


def _field(body: Any) -> Any:
    """A refusal without the Go form of the value it refuses."""
    if body["kind"] != "Status":
        return body["kind"]
    causes = [{**cause, "message": cause["message"].rpartition(": ")[2]} for cause in body["details"]["causes"]]
    message = [body["message"].partition("Invalid value")[0], body["message"].rpartition(": ")[2]]
    return {**body, "message": message, "details": {**body["details"], "causes": causes}}


@script
def validation_workloads(c: Client) -> None:
    apps = f"/apis/apps/v1/namespaces/{c.ns}"
    containers = [{"name": "main", "image": "busybox:1"}]
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}}
    good: Json = {"selector": {"matchLabels": {"app": "x"}}, "template": template}

    def refuse(step: str, plural: str, spec: Json) -> None:
        c.send(
            f"{plural}: {step}",
            "POST",
            f"{apps}/{plural}",
            {"metadata": {"name": "w"}, "spec": spec},
            query=DRY,
            only=_short,
        )

    for plural in ("daemonsets", "deployments", "replicasets", "statefulsets"):
        refuse("no spec", plural, {})
        refuse("no selector", plural, {"template": template})
        refuse("an empty selector", plural, {**good, "selector": {}})
        c.send(f"{plural}: another label", "POST", f"{apps}/{plural}", {"metadata": {"name": "w"}, "spec": {
            **good, "selector": {"matchLabels": {"app": "y"}}}}, query=DRY, only=_field)  # fmt: skip
    refuse("a restart policy", "daemonsets", {
        **good, "template": {**template, "spec": {"containers": containers, "restartPolicy": "Never"}}})  # fmt: skip
    refuse("an update strategy", "daemonsets", {**good, "updateStrategy": {"type": "Perhaps"}})
    refuse("nothing may be unavailable", "daemonsets", {
        **good, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}})  # fmt: skip
    refuse("negative replicas", "deployments", {**good, "replicas": -1})
    refuse("a selector's operator", "deployments", {**good, "selector": {
        "matchExpressions": [{"key": "app", "operator": "Perhaps"}]}})  # fmt: skip
    refuse("a selector's wrong values", "deployments", {**good, "selector": {
        "matchLabels": {"app": "x y"}, "matchExpressions": [{"key": "app", "operator": "In"}]}})  # fmt: skip
    c.do("POST", f"{apps}/daemonsets", {"metadata": {"name": "one"}, "spec": good})
    c.send("a selector changes", "PATCH", f"{apps}/daemonsets/one", {"spec": {
        "selector": {"matchLabels": {"app": "y"}}, "template": {"metadata": {"labels": {"app": "y"}}}}},
        content_type=MERGE, only=_field)  # fmt: skip


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
    refuse("an address range", {"podCIDR": "x"})
    node = "/api/v1/nodes/validation-nodes-1"
    c.do("POST", "/api/v1/nodes", {"metadata": {"name": "validation-nodes-1"}, "spec": {"providerID": "a"}})
    c.send("another provider", "PATCH", node, {"spec": {"providerID": "b"}}, content_type=MERGE)
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
    refuse(
        "a budget's eviction policy", budgets, {"spec": {"minAvailable": 1, "unhealthyPodEvictionPolicy": "Perhaps"}}
    )
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases"
    refuse("a lease of no time", leases, {"spec": {"leaseDurationSeconds": 0}})
    refuse("a lease of negative time", leases, {"spec": {"leaseDurationSeconds": -1}})
    refuse("a lease with negative transitions", leases, {"spec": {"leaseTransitions": -1}})
    refuse("a lease of nobody", leases, {"spec": {"holderIdentity": ""}})
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    roles, bindings = f"{rbac}/namespaces/{c.ns}/roles", f"{rbac}/namespaces/{c.ns}/rolebindings"
    refuse("a rule without verbs", roles, {"rules": [{"apiGroups": [""], "resources": ["pods"]}]})
    refuse("a rule without groups", roles, {"rules": [{"verbs": ["get"], "resources": ["pods"]}]})
    refuse("a rule without resources", roles, {"rules": [{"verbs": ["get"], "apiGroups": [""]}]})
    refuse("a role with paths", roles, {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/"]}]})
    refuse("a rule with resources and paths", f"{rbac}/clusterroles", {
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "nonResourceURLs": ["/"]}]})  # fmt: skip
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    refuse("a binding without a role", bindings, {})
    refuse("a binding to a wrong kind", bindings, {"roleRef": {**role, "kind": "Pod"}})
    refuse("a binding to a wrong group", bindings, {"roleRef": {**role, "apiGroup": "apps"}})
    refuse("a binding without a name", bindings, {"roleRef": {**role, "name": ""}})
    refuse("a binding of wrong subjects", bindings, {"roleRef": role, "subjects": [
        {"kind": "Pod", "name": "p"}, {"kind": "User", "name": ""},
        {"kind": "ServiceAccount", "name": "A_"}]})  # fmt: skip
    refuse("a cluster's binding to a role", f"{rbac}/clusterrolebindings", {"roleRef": {**role, "kind": "Role"}})
    c.do("POST", bindings, {"metadata": {"name": "one"}, "roleRef": role})
    c.send(
        "a binding's role changes",
        "PATCH",
        f"{bindings}/one",
        {"roleRef": {"name": "edit"}},
        content_type=MERGE,
        only=_field,
    )
    priorities = "/apis/scheduling.k8s.io/v1/priorityclasses"
    refuse("too high a priority", priorities, {"value": 1000000001})
    refuse("a preemption policy", priorities, {"value": 1, "preemptionPolicy": "Perhaps"})
    c.do("POST", priorities, {"metadata": {"name": "validation-others-1"}, "value": 1})
    c.send("a priority changes", "PATCH", f"{priorities}/validation-others-1", {"value": 2}, content_type=MERGE)
    events = f"/api/v1/namespaces/{c.ns}/events"
    refuse("an event elsewhere", events, {"involvedObject": {"namespace": "elsewhere"}})
    refuse("an event of a cluster's object", events, {"involvedObject": {"kind": "Node", "name": "n"}})
    news = f"/apis/events.k8s.io/v1/namespaces/{c.ns}/events"
    refuse("a new event without anything", news, {"regarding": {"namespace": c.ns}})
    refuse("a new event's type", news, {
        "regarding": {"namespace": c.ns}, "eventTime": "2026-01-02T03:04:05.000006Z", "type": "Perhaps", "reason": "r",
        "action": "a", "reportingController": "c", "reportingInstance": "i"})  # fmt: skip
    timed = {"eventTime": "2026-01-02T03:04:05.000006Z", "type": "Normal"}
    whole = {**timed, "reason": "r", "action": "a", "reportingController": "c", "reportingInstance": "i"}
    about = {"regarding": {"namespace": c.ns}}
    refuse("a new event of nothing but its time", news, {**about, **timed})
    refuse("a new event about no namespace", news, whole)
    refuse("a new event's long parts", news, {**about, **whole, "action": "a" * 129, "reason": "r" * 129,
        "reportingInstance": "i" * 129, "note": "n" * 1025})  # fmt: skip
    refuse("a new event's short series", news, {
        **about, **whole, "series": {"count": 1, "lastObservedTime": timed["eventTime"]}})  # fmt: skip
    refuse("a new event with the old parts", news, {**about, **whole, "deprecatedCount": 1,
        "deprecatedSource": {"component": "c"}, "deprecatedFirstTimestamp": "2026-01-02T03:04:05Z"})  # fmt: skip
    refuse("an event of nothing but its time", events, {"involvedObject": {"namespace": c.ns}, **timed})
    refuse("an account's wrong secret", f"/api/v1/namespaces/{c.ns}/serviceaccounts", {"secrets": [{"name": "A_"}]})


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
    refuse("a docker secret without data", "secrets", {"type": "kubernetes.io/dockerconfigjson"})
    refuse("a TLS secret without data", "secrets", {"type": "kubernetes.io/tls"})
    refuse("a token secret without an account", "secrets", {"type": "kubernetes.io/service-account-token"})
    refuse("a basic-auth secret without data", "secrets", {"type": "kubernetes.io/basic-auth"})
    for plural, changed in (("configmaps", {"a": "c"}), ("secrets", {"a": "Yw=="})):
        c.do("POST", f"{space}/{plural}", {"metadata": {"name": "frozen"}, "data": {"a": "Yg=="}, "immutable": True})
        frozen = f"{space}/{plural}/frozen"
        c.send(f"frozen {plural}: data", "PATCH", frozen, {"data": changed}, content_type=MERGE)
        c.send(f"frozen {plural}: thawed", "PATCH", frozen, {"immutable": False}, content_type=MERGE)
        c.send(f"frozen {plural}: unset", "PATCH", frozen, {"immutable": None}, content_type=MERGE)
        c.send(f"frozen {plural}: labels", "PATCH", frozen, {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
    c.do("POST", f"{space}/secrets", {"metadata": {"name": "typed"}})
    c.send("a secret's type", "PATCH", f"{space}/secrets/typed", {"type": "example.com/x"}, content_type=MERGE)
