"""Server-side apply and managedFields: who owns what after which write, and who is told about conflicts."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import APPLY, JSON_PATCH, MERGE, STRATEGIC, Answer, Client
from tests.kubesim.conformance.scripts import script
from tests.kubesim.conformance.scripts.write_parts import entries, owned

Json = dict[str, Any]


def _config(name: str, **parts: Any) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **parts.pop("metadata", {})}, **parts}


@script
def apply_ownership(c: Client) -> None:
    one = f"/api/v1/namespaces/{c.ns}/configmaps/one"

    def apply(step: str, manager: str, config: Json, **query: str) -> Answer:
        return c.send(
            step, "PATCH", one, config, content_type=APPLY, query={"fieldManager": manager, **query}, managed=True
        )

    apply("create", "a", _config("one", data={"k": "1", "l": "1"}, metadata={"labels": {"x": "y"}}))
    apply("the same again", "a", _config("one", data={"k": "1", "l": "1"}, metadata={"labels": {"x": "y"}}))
    apply("a value changes", "a", _config("one", data={"k": "2", "l": "1"}, metadata={"labels": {"x": "y"}}))
    apply("a field less", "a", _config("one", data={"k": "2"}, metadata={"labels": {"x": "y"}}))
    apply("another shares a value", "b", _config("one", data={"k": "2", "m": "1"}))
    apply("another's conflict", "b", _config("one", data={"k": "3", "m": "1"}))
    apply("two conflicts", "b", _config("one", data={"k": "3"}, metadata={"labels": {"x": "z"}}))
    apply("by force", "b", _config("one", data={"k": "3", "m": "1"}), force="true")
    apply("the first lets go", "a", _config("one", metadata={"labels": {"x": "y"}}))
    apply("the last owner lets go", "b", _config("one", data={"m": "1"}))
    apply("everything is let go", "b", _config("one"))
    c.send("an update takes over", "PATCH", one, {"metadata": {"labels": {"x": "updated"}}, "data": {"u": "v"}},
           content_type=MERGE, query={"fieldManager": "u"}, managed=True, only=owned)  # fmt: skip
    apply("a conflict with an update", "a", _config("one", metadata={"labels": {"x": "y"}}, data={"u": "w"}))
    apply(
        "by force against an update",
        "a",
        _config("one", metadata={"labels": {"x": "y"}}, data={"u": "w"}),
        force="true",
    )
    c.send("an update of what was applied", "PATCH", one, {"data": {"u": "x"}}, content_type=MERGE,
           query={"fieldManager": "a"}, managed=True, only=owned)  # fmt: skip
    apply("a conflict with one's own update", "a", _config("one", metadata={"labels": {"x": "y"}}, data={"u": "w"}))


@script
def apply_requests(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    manager = {"fieldManager": "a"}

    def apply(step: str, config: Any, query: Json | None = None, name: str = "one") -> Answer:
        return c.send(
            step, "PATCH", f"{configmaps}/{name}", config, content_type=APPLY, query=manager if query is None else query
        )

    apply("no manager", _config("one"), {})
    apply("an empty manager", _config("one"), {"fieldManager": ""})
    apply("a long manager", _config("one"), {"fieldManager": "x" * 129})
    apply("an unprintable manager", _config("one"), {"fieldManager": "a\tb"})
    apply("no apiVersion", {"kind": "ConfigMap", "metadata": {"name": "one"}})
    apply("no kind", {"apiVersion": "v1", "metadata": {"name": "one"}})
    apply("another kind", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}})
    apply("another version", {"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "one"}})
    apply("no name", {"apiVersion": "v1", "kind": "ConfigMap"})
    apply("another name", _config("two"))
    apply("another namespace", _config("one", metadata={"namespace": "elsewhere"}))
    apply("managedFields", _config("one", metadata={"managedFields": [{"manager": "x"}]}))
    apply("a version of what is not there", _config("one", metadata={"resourceVersion": "1"}))
    apply("a uid of what is not there", _config("one", metadata={"uid": "11111111-2222-3333-4444-555555555555"}))
    apply("YAML", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  k: v\n", name="yaml")
    apply("no YAML", "a: [")
    apply("a list", "- a\n")
    apply("an empty body", b"")
    apply("an unknown field", _config("one", dat={"k": "v"}))
    apply("an unknown field, strictly", _config("one", dat={"k": "v"}), {**manager, "fieldValidation": "Strict"})
    apply("an unknown field, with a warning", _config("one", dat={"k": "v"}), {**manager, "fieldValidation": "Warn"})
    apply("a wrong type", _config("one", data={"k": 5}))
    apply("a wrong value", _config("one", metadata={"labels": {"a b": "c"}}))
    made = apply("created, dry", _config("dry"), {**manager, "dryRun": "All"}, "dry")
    c.get("nothing was created", f"{configmaps}/dry")
    made = apply("created", _config("made", data={"k": "v"}), None, "made")
    apply("with the version", _config("made", metadata={"resourceVersion": made.rv}, data={"k": "w"}), None, "made")
    apply("with an old version", _config("made", metadata={"resourceVersion": made.rv}, data={"k": "x"}), None, "made")
    apply("with another uid", _config("made", metadata={"uid": "11111111-2222-3333-4444-555555555555"}), None, "made")
    apply("nulls", _config("made", data={"k": None, "l": "m"}), None, "made")
    c.send("force without apply", "PATCH", f"{configmaps}/made", {}, content_type=MERGE, query={"force": "true"})
    c.send(
        "a malformed force",
        "PATCH",
        f"{configmaps}/made",
        _config("made"),
        content_type=APPLY,
        query={**manager, "force": "x"},
    )
    c.send("a missing namespace", "PATCH", "/api/v1/namespaces/apply-requests-none/configmaps/one", _config("one"),
           content_type=APPLY, query=manager)  # fmt: skip
    c.send("a list's path", "PATCH", configmaps, _config("one"), content_type=APPLY, query=manager)


@script
def apply_lists(c: Client) -> None:
    """Lists with keys, atomic ones, sets, and items that several managers share."""
    node = "/api/v1/nodes/apply-lists-1"

    def apply(step: str, manager: str, where: str = "", force: str = "false", **parts: Any) -> Answer:
        meta = {"name": "apply-lists-1", **parts.pop("metadata", {})}
        config = {"apiVersion": "v1", "kind": "Node", "metadata": meta, **parts}
        query = {"fieldManager": manager, "force": force}
        return c.send(step, "PATCH", node + where, config, content_type=APPLY, query=query, managed=True, only=owned)

    taint = {"key": "a", "effect": "NoSchedule"}
    apply("create", "a", spec={"taints": [taint]}, metadata={"labels": {"gpu": "yes"}, "finalizers": ["example.com/a"]})
    apply("taints of another", "b", spec={"taints": [{"key": "b", "effect": "NoExecute"}]})
    apply("a finalizer of another", "b", metadata={"finalizers": ["example.com/b"]})
    apply("a finalizer is let go", "a", metadata={"labels": {"gpu": "yes"}})
    ready = {"type": "Ready", "status": "True"}
    apply("a condition", "kubelet", "/status", status={"conditions": [ready], "capacity": {"cpu": "4"}})
    gpu = {"type": "GpuOk", "status": "True", "reason": "Fine"}
    apply("another's condition", "npd", "/status", status={"conditions": [gpu]})
    apply(
        "another's condition disputed",
        "npd",
        "/status",
        status={"conditions": [gpu, {"type": "Ready", "status": "False"}]},
    )
    apply("a condition is let go", "npd", "/status", status={"capacity": {"nvidia.com/gpu": "8"}})
    apply("a spec by way of the status", "npd", "/status", spec={"unschedulable": True}, status={})
    apply("a status by way of the spec", "a", spec={"unschedulable": True}, status={"phase": "Running"})
    c.do("PATCH", node, {"metadata": {"finalizers": None}}, MERGE)


@script
def apply_pods(c: Client) -> None:
    template = f"/api/v1/namespaces/{c.ns}/podtemplates/one"

    def apply(step: str, manager: str, spec: Json, force: str = "false") -> None:
        config = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "one"}, "template": {"spec": spec}}
        query = {"fieldManager": manager, "force": force}
        c.send(step, "PATCH", template, config, content_type=APPLY, query=query, managed=True, only=_fields)

    main = {"name": "main", "image": "a:1", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}],
            "resources": {"limits": {"nvidia.com/gpu": 1}}}  # fmt: skip
    apply("create", "a", {"containers": [main], "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]})
    apply("a sidecar", "b", {"containers": [{"name": "side", "image": "b:1"}]})
    apply("an environment more", "b", {"containers": [{"name": "side", "image": "b:1"}, {
        "name": "main", "env": [{"name": "B", "value": "2"}]}]})  # fmt: skip
    apply("another image", "b", {"containers": [{"name": "side", "image": "b:1"}, {"name": "main", "image": "a:2"}]})
    apply("another default", "b", {"containers": [{"name": "side", "image": "b:1", "imagePullPolicy": "Always"}]})
    apply("the sidecar is let go", "b", {"containers": [{"name": "main", "env": [{"name": "B", "value": "2"}]}]})
    apply("the environment is let go", "a", {"containers": [{"name": "main", "image": "a:1"}]})
    apply("the same container twice", "a", {"containers": [main, main]})
    apply("a container without a name", "a", {"containers": [{"image": "a:1"}]})
    apply(
        "a quantity in another form",
        "a",
        {"containers": [{**main, "resources": {"limits": {"cpu": "0.5", "memory": "1024Ki"}}}]},
    )


def _fields(body: Any) -> Any:
    if body["kind"] == "Status":
        return body
    return {"managedFields": entries(body), "template": body["template"]["spec"]}


@script
def managed_fields(c: Client) -> None:
    """After every sort of write."""
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    one = f"{configmaps}/one"

    def send(
        step: str, method: str, path: str, body: Any, content_type: str = "application/json", **query: str
    ) -> None:
        c.send(step, method, path, body, content_type=content_type, query=query, managed=True, only=_managed)

    meta = {"name": "one", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["example.com/f"]}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    send(
        "created with an owner",
        "POST",
        configmaps,
        {"metadata": {"name": "owned", "ownerReferences": [owner]}},
        dryRun="All",
    )
    send("created", "POST", configmaps, {"metadata": meta, "data": {"k": "v"}, "immutable": False})
    send("created with nothing", "POST", configmaps, {"metadata": {"name": "nothing"}})
    send("created with empty maps", "POST", configmaps, {"metadata": {"name": "empty", "labels": {}}, "data": {}})
    send("patched by another", "PATCH", one, {"data": {"k": "w", "l": "x"}}, MERGE, fieldManager="b")
    send("nothing patched", "PATCH", one, {"data": {"k": "w"}}, MERGE, fieldManager="c")
    send("a field removed by another", "PATCH", one, {"data": {"l": None}}, MERGE, fieldManager="c")
    send("a strategic patch", "PATCH", one, {"metadata": {"labels": {"e": "f"}}}, STRATEGIC, fieldManager="c")
    send("a JSON patch", "PATCH", one, [{"op": "remove", "path": "/metadata/labels/a"}], JSON_PATCH, fieldManager="d")
    send("replaced by the first", "PUT", one, {"metadata": {"name": "one"}, "data": {"k": "z"}})
    send("a long manager", "PATCH", one, {"data": {"k": "y"}}, MERGE, fieldManager="x" * 129)
    send("managedFields cleared", "PATCH", one, {"metadata": {"managedFields": [{}]}}, MERGE, fieldManager="b")
    send("a patch of what nobody owns", "PATCH", one, {"data": {"n": "o"}}, MERGE, fieldManager="b")
    send("managedFields emptied", "PATCH", one, {"metadata": {"managedFields": []}}, MERGE, fieldManager="b")
    send("managedFields removed", "PATCH", one, {"metadata": {"managedFields": None}}, MERGE, fieldManager="b")
    send(
        "applied to what nobody owns", "PATCH", one, _config("one", data={"n": "o", "k": "y"}), APPLY, fieldManager="a"
    )
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    spec = {"containers": [{"name": "c", "image": "i:1", "resources": {"limits": {"nvidia.com/gpu": 1}},
                            "env": [{"name": "A", "value": "b"}], "ports": [{"containerPort": 80}],
                            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}]}  # fmt: skip
    send("a pod", "POST", pods, {"metadata": {"name": "p"}, "spec": spec}, fieldManager="a")
    status = {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
              "startTime": "2026-01-02T03:04:05Z",
              "conditions": [{"type": "Ready", "status": "True"}],
              "containerStatuses": [{"name": "c", "ready": True, "image": "i:1", "imageID": "",
                                     "restartCount": 0}]}  # fmt: skip
    send("a pod's status", "PATCH", f"{pods}/p/status", {"status": status}, STRATEGIC, fieldManager="kubelet")
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "managed-fields-1"}}
    c.do("POST", f"{pods}/p/binding", binding)
    c.get("a bound pod", f"{pods}/p", managed=True, only=_managed)
    c.do("DELETE", f"{pods}/p")
    c.get("a deleted pod", f"{pods}/p", managed=True, only=_managed)
    jobs = f"/apis/batch/v1/namespaces/{c.ns}/jobs"
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    send("a job", "POST", jobs, {"metadata": {"name": "j"}, "spec": {"template": template}})
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases"
    send(
        "a lease",
        "POST",
        leases,
        {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 40}},
    )
    send(
        "a secret", "POST", f"/api/v1/namespaces/{c.ns}/secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}}
    )
    send("an account", "POST", f"/api/v1/namespaces/{c.ns}/serviceaccounts", {
        "metadata": {"name": "a"}, "secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "s"}]})  # fmt: skip
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": c.ns, "name": "p"},
             "reason": "r",
             "count": 1, "source": {"component": "me"}, "firstTimestamp": "2026-01-02T03:04:05Z"}  # fmt: skip
    send("an event", "POST", f"/api/v1/namespaces/{c.ns}/events", event)
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{c.ns}"
    send("a role", "POST", f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})  # fmt: skip
    send("a role binding", "POST", f"{rbac}/rolebindings", {"metadata": {"name": "r"}, "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [
        {"kind": "ServiceAccount", "name": "a", "namespace": c.ns}]})  # fmt: skip
    budgets = f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets"
    send("a budget", "POST", budgets, {"metadata": {"name": "b"}, "spec": {
        "minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}})  # fmt: skip
    services = f"/api/v1/namespaces/{c.ns}/services"
    send("a service", "POST", services, {"metadata": {"name": "s"}, "spec": {
        "clusterIP": "None", "ports": [{"port": 80}], "selector": {"a": "b"}}})  # fmt: skip


def _managed(body: Any) -> Any:
    return body if body["kind"] == "Status" else entries(body)


@script
def managed_fields_of_nodes(c: Client) -> None:
    """A virtual kubelet's life: register, report, be tainted by one and drained by another."""
    nodes, node = "/api/v1/nodes", "/api/v1/nodes/managed-fields-1"

    def send(step: str, method: str, path: str, body: Any, content_type: str, manager: str) -> None:
        c.send(
            step,
            method,
            path,
            body,
            content_type=content_type,
            query={"fieldManager": manager},
            managed=True,
            only=_managed,
        )

    body = {"metadata": {"name": "managed-fields-1", "labels": {"kubernetes.io/hostname": "n"},
                         "annotations": {"a": "b"}},
            "status": {"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "False"}],
                       "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                       "nodeInfo": {"kubeletVersion": "v1"},
                       "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}}  # fmt: skip
    send("registered", "POST", nodes, body, "application/json", "kubelet")
    change: Json = {"status": {"conditions": [{"type": "Ready", "status": "True",
                                               "lastHeartbeatTime": "2026-01-02T03:04:05Z"}],
                               "allocatable": {"cpu": "3"}, "images": [{"names": ["a"]}]}}  # fmt: skip
    send("reported", "PATCH", f"{node}/status", change, STRATEGIC, "kubelet")
    gpu = {"status": {"conditions": [{"type": "Gpu", "status": "True"}]}}
    send("a detector's condition", "PATCH", f"{node}/status", gpu, STRATEGIC, "npd")
    taints = [{"key": "a", "effect": "NoSchedule"}]
    send("tainted", "PATCH", node, {"spec": {"taints": taints}}, STRATEGIC, "health")
    send(
        "tainted by another",
        "PATCH",
        node,
        {"spec": {"taints": [*taints, {"key": "b", "effect": "NoExecute"}]}},
        STRATEGIC,
        "other",
    )
    send("cordoned", "PATCH", node, {"spec": {"unschedulable": True}}, MERGE, "kubectl-cordon")
    send("uncordoned", "PATCH", node, {"spec": {"unschedulable": None}}, MERGE, "kubectl-uncordon")
    send("untainted", "PATCH", node, {"spec": {"taints": None}}, MERGE, "health")
