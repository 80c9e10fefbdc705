"""Patches: merge, strategic merge with its directives and merge keys, JSON patch, how malformed ones are refused."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import JSON_PATCH, MERGE, STRATEGIC, Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]
GONE = "11111111-2222-3333-4444-555555555555"


@script
def merge_patches(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    one = f"{configmaps}/one"
    meta = {"name": "one", "labels": {"a": "b", "c": "d"}, "finalizers": ["example.com/a", "example.com/b"]}
    first = c.send("create", "POST", configmaps, {"metadata": meta, "data": {"k": "v", "l": "w"}})

    def patch(step: str, change: Any, **options: Any) -> None:
        c.send(step, "PATCH", one, change, content_type=MERGE, **options)

    patch("a key more, one changed, one less", {"data": {"k": None, "l": "x", "m": "y"}})
    patch("nothing", {})
    patch("what is there already", {"data": {"l": "x"}})
    patch("a key removed that is not there", {"data": {"nothing": None}})
    patch("a list is replaced", {"metadata": {"finalizers": ["example.com/b"]}})
    patch("a map is removed", {"data": None})
    patch("labels are removed", {"metadata": {"labels": None}})
    patch("finalizers are removed", {"metadata": {"finalizers": None}})
    patch("an old version", {"metadata": {"resourceVersion": first.rv}, "data": {"z": "z"}})
    current = c.get("read", one).rv
    patch("the right version", {"metadata": {"resourceVersion": current}, "data": {"z": "z"}})
    patch("version 0", {"metadata": {"resourceVersion": "0"}, "data": {"z": "y"}})
    patch("no version", {"metadata": {"resourceVersion": None}, "data": {"z": "x"}})
    patch("an empty version", {"metadata": {"resourceVersion": ""}, "data": {"z": "w"}})
    c.send("of what is not there", "PATCH", f"{configmaps}/two", {}, content_type=MERGE)
    c.send("of what is not there, with a version", "PATCH", f"{configmaps}/two", {"metadata": {"resourceVersion": "1"}},
           content_type=MERGE)  # fmt: skip
    c.send(
        "in a missing namespace",
        "PATCH",
        "/api/v1/namespaces/merge-patches-none/configmaps/one",
        {},
        content_type=MERGE,
    )


@script
def patch_formats(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    c.do("POST", configmaps, {"metadata": {"name": "one"}})
    for kind in ("application/json", "text/plain", "nonsense", "", "application/merge-patch+json; charset=utf-8"):
        c.send(f"as {kind!r}", "PATCH", f"{configmaps}/one", {"data": {"k": "v"}}, content_type=kind)
    c.send("of what is not there", "PATCH", f"{configmaps}/two", {}, content_type="text/plain")


@script
def strategic_patches_of_pods(c: Client) -> None:
    """On templates, whose lists have merge keys and may still change."""
    path = f"/apis/apps/v1/namespaces/{c.ns}/daemonsets"
    labels = {"matchLabels": {"a": "b"}}
    spec = {
        "containers": [
            {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
             "ports": [{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}], "args": ["1", "2"]},
            {"name": "b", "image": "b:1"},
        ],
        "tolerations": [{"key": "t", "operator": "Exists"}],
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
        "nodeSelector": {"a": "b", "c": "d"},
    }  # fmt: skip
    number = 0

    def patch(step: str, change: Json) -> None:
        nonlocal number
        number += 1
        name = f"t{number}"
        template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
        c.do("POST", path, {"metadata": {"name": name}, "spec": {"selector": labels, "template": template}})
        body = {"spec": {"template": {"spec": change}}}
        c.send(step, "PATCH", f"{path}/{name}", body, content_type=STRATEGIC, only=_template)

    patch("a container by name", {"containers": [{"name": "a", "image": "a:2"}]})
    patch("a container more", {"containers": [{"name": "c", "image": "c:1"}]})
    patch("a container less", {"containers": [{"name": "a", "$patch": "delete"}]})
    patch("a container less that is not there", {"containers": [{"name": "z", "$patch": "delete"}]})
    patch("a container replaced", {"containers": [{"name": "a", "image": "a:3", "$patch": "replace"}]})
    patch("all containers replaced", {"containers": [{"name": "c", "image": "c:1"}, {"$patch": "replace"}]})
    patch("containers in another order", {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]})
    patch("an order and a change", {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}],
                                    "containers": [{"name": "c", "image": "c:1"},
                                                   {"name": "b", "image": "b:2"}]})  # fmt: skip
    patch("an order that lacks a change", {"$setElementOrder/containers": [{"name": "a"}],
                                          "containers": [{"name": "c", "image": "c:1"}]})  # fmt: skip
    patch("a container without a name", {"containers": [{"image": "a:2"}]})
    patch("a container that is a string", {"containers": ["a"]})
    patch(
        "environment by name",
        {"containers": [{"name": "a", "env": [{"name": "Y", "value": "3"}, {"name": "Z", "value": "4"}]}]},
    )
    patch("environment less", {"containers": [{"name": "a", "env": [{"name": "X", "$patch": "delete"}]}]})
    patch("ports by number", {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "web"}]}]})
    patch("arguments are replaced", {"containers": [{"name": "a", "args": ["3"]}]})
    patch("tolerations are replaced", {"tolerations": [{"key": "u", "operator": "Exists"}]})
    patch("a volume of another kind", {"volumes": [{"name": "v", "hostPath": {"path": "/v"}}]})
    patch(
        "a volume of another kind alone",
        {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/v"}}]},
    )
    patch(
        "keys that are not retained", {"volumes": [{"name": "v", "$retainKeys": ["name"], "hostPath": {"path": "/v"}}]}
    )
    patch("a selector's key less", {"nodeSelector": {"a": None, "e": "f"}})
    patch("a selector replaced", {"nodeSelector": {"$patch": "replace", "x": "y"}})
    patch("a selector deleted", {"nodeSelector": {"$patch": "delete"}})
    patch("a list set to null", {"tolerations": None})
    patch("no such directive", {"nodeSelector": {"$patch": "nonsense"}})


def _template(body: Any) -> Any:
    if body["kind"] == "Status":
        return body
    spec = body["spec"]["template"]["spec"]
    named = ("containers", "tolerations", "volumes", "nodeSelector")
    return {key: spec[key] for key in named if key in spec}


@script
def strategic_patches_of_nodes(c: Client) -> None:
    """Taints, as kubectl and health controllers write them, and conditions, as kubelets and detectors do."""
    node = "/api/v1/nodes/strategic-patches-1"
    first = {"key": "a", "value": "1", "effect": "NoSchedule"}
    c.do("POST", "/api/v1/nodes", {"metadata": {"name": "strategic-patches-1"}, "spec": {"taints": [first]}})

    def patch(step: str, change: Any, where: str = "") -> None:
        c.send(step, "PATCH", node + where, change, content_type=STRATEGIC, only=_node)

    faulty = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
    patch("taints are replaced", {"spec": {"taints": [faulty]}})
    patch("a taint more", {"spec": {"taints": [faulty, first]}})
    patch("taints with a deletion", {"spec": {"taints": [{"key": "a", "$patch": "delete"}]}})
    patch("no taints", {"spec": {"taints": []}})
    patch("taints are null", {"spec": {"taints": None}})
    patch("cordon", {"spec": {"unschedulable": True}})
    patch("uncordon", {"spec": {"unschedulable": None}})
    patch("labels", {"metadata": {"labels": {"a": "b"}}})
    patch("labels less", {"metadata": {"labels": {"a": None}}})
    patch("a finalizer", {"metadata": {"finalizers": ["example.com/a"]}})
    patch("a finalizer more", {"metadata": {"finalizers": ["example.com/b"]}})
    patch("a finalizer less", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}})
    patch("finalizers in an order", {"metadata": {
        "$setElementOrder/finalizers": ["example.com/c", "example.com/b"],
        "finalizers": ["example.com/c"]}})  # fmt: skip
    patch("no finalizers", {"metadata": {"finalizers": None}})
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-02T03:04:05Z", "reason": "KubeletReady"}
    patch("a condition", {"status": {"conditions": [ready]}}, "/status")
    gpu = {"type": "GpuXidError", "status": "True", "reason": "Xid79", "message": "fallen off the bus"}
    patch("a condition more", {"status": {"conditions": [gpu]}}, "/status")
    patch("a condition changes", {"status": {"conditions": [{"type": "GpuXidError", "status": "False"}]}}, "/status")
    patch("conditions with an order", {"status": {
        "$setElementOrder/conditions": [{"type": "GpuXidError"}, {"type": "Ready"}],
        "conditions": [{"type": "Ready", "lastHeartbeatTime": "2026-01-02T03:05:05Z"}]}}, "/status")  # fmt: skip
    patch("a condition less", {"status": {"conditions": [{"type": "GpuXidError", "$patch": "delete"}]}}, "/status")
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}]
    patch("addresses", {"status": {"addresses": addresses}}, "/status")
    patch("an address by type", {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}}, "/status")
    patch(
        "capacity", {"status": {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": 7}}}, "/status"
    )
    patch("capacity less", {"status": {"capacity": {"nvidia.com/gpu": None}}}, "/status")
    patch("images are replaced", {"status": {"images": [{"names": ["a:1"], "sizeBytes": 5}]}}, "/status")
    patch("a spec by way of the status", {"spec": {"unschedulable": True}}, "/status")


def _node(body: Any) -> Any:
    if body["kind"] == "Status":
        return body
    meta = {key: body["metadata"].get(key) for key in ("labels", "finalizers", "resourceVersion")}
    status = {key: body["status"].get(key) for key in ("conditions", "addresses", "capacity", "allocatable", "images")}
    return {"metadata": meta, "spec": body["spec"], "status": status}


@script
def strategic_patches(c: Client) -> None:
    """Of anything: bodies, versions, directives of whole objects."""
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    one = f"{configmaps}/one"
    first = c.send("create", "POST", configmaps, {"metadata": {"name": "one"}, "data": {"k": "v"}})

    def patch(step: str, change: Any) -> None:
        c.send(step, "PATCH", one, change, content_type=STRATEGIC)

    patch("nothing", {})
    patch("a key", {"data": {"l": "w"}})
    patch("an old version", {"metadata": {"resourceVersion": first.rv}, "data": {"l": "x"}})
    patch("data replaced", {"data": {"$patch": "replace", "only": "this"}})
    patch("data deleted", {"data": {"$patch": "delete"}})
    patch("the object deleted", {"$patch": "delete"})
    patch("the object replaced", {"$patch": "replace", "metadata": {"name": "one"}, "data": {"all": "new"}})
    # One that is there: what has lost its owner is collected.
    uid = c.do("POST", configmaps, {"metadata": {"name": "owner"}})["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    patch("an owner", {"metadata": {"ownerReferences": [{**owner, "uid": uid}]}})
    patch("an owner by uid", {"metadata": {"ownerReferences": [{"uid": uid, "controller": True}]}})
    patch("an owner less", {"metadata": {"ownerReferences": [{"uid": uid, "$patch": "delete"}]}})
    c.send("of what is not there", "PATCH", f"{configmaps}/two", {}, content_type=STRATEGIC)


@script
def json_patches(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    one = f"{configmaps}/one"
    c.send(
        "create",
        "POST",
        configmaps,
        {"metadata": {"name": "one", "labels": {"a/b": "c"}}, "data": {"k": "v", "l": "w"}},
    )

    def patch(step: str, *operations: Json, **options: Any) -> None:
        c.send(step, "PATCH", one, list(operations), content_type=JSON_PATCH, **options)

    patch("add", {"op": "add", "path": "/data/m", "value": "x"})
    patch("replace", {"op": "replace", "path": "/data/k", "value": "w"})
    patch("remove", {"op": "remove", "path": "/data/l"})
    patch("move", {"op": "move", "from": "/data/m", "path": "/data/n"})
    patch("copy", {"op": "copy", "from": "/data/n", "path": "/data/o"})
    patch(
        "test that holds",
        {"op": "test", "path": "/data/k", "value": "w"},
        {"op": "add", "path": "/data/p", "value": "q"},
    )
    patch(
        "test that fails",
        {"op": "test", "path": "/data/k", "value": "z"},
        {"op": "add", "path": "/data/q", "value": "r"},
    )
    patch("test of what is not there", {"op": "test", "path": "/data/z", "value": "z"})
    patch("test for null of what is not there", {"op": "test", "path": "/data/z", "value": None})
    patch("remove what is not there", {"op": "remove", "path": "/data/z"})
    patch("replace what is not there", {"op": "replace", "path": "/data/z", "value": "z"})
    patch("add where no parent is", {"op": "add", "path": "/binaryData/z", "value": "z"})
    patch("an escaped path", {"op": "replace", "path": "/metadata/labels/a~1b", "value": "d"})
    patch("nothing")
    patch("what is there already", {"op": "replace", "path": "/data/k", "value": "w"})
    patch("a path without a slash", {"op": "add", "path": "data", "value": {}})
    patch("no path", {"op": "add", "value": {}})
    patch("no value", {"op": "add", "path": "/data/z"})
    patch("no operation", {"path": "/data/z", "value": "z"})
    patch("no such operation", {"op": "nonsense", "path": "/data/z", "value": "z"})
    patch("a null value", {"op": "add", "path": "/data", "value": None})
    c.send("of what is not there", "PATCH", f"{configmaps}/two", [], content_type=JSON_PATCH)
    node = "/api/v1/nodes/json-patches-1"
    c.do("POST", "/api/v1/nodes", {"metadata": {"name": "json-patches-1"}})
    taint = {"key": "a", "effect": "NoSchedule"}
    only = lambda body: body["spec"] if body["kind"] == "Node" else body  # noqa: E731
    c.send("append to a list", "PATCH", node, [{"op": "add", "path": "/spec/taints/-", "value": taint}],
           content_type=JSON_PATCH, only=only)  # fmt: skip
    c.send("insert into a list", "PATCH", node, [{"op": "add", "path": "/spec/taints/0",
                                                  "value": {**taint, "key": "b"}}],
           content_type=JSON_PATCH, only=only)  # fmt: skip
    c.send("remove from a list", "PATCH", node, [{"op": "test", "path": "/spec/taints/0/key", "value": "b"}, {
        "op": "remove", "path": "/spec/taints/0"}], content_type=JSON_PATCH, only=only)  # fmt: skip
    c.send("an index beyond the list", "PATCH", node, [{"op": "remove", "path": "/spec/taints/9"}],
           content_type=JSON_PATCH, only=only)  # fmt: skip
    c.send("an index that is none", "PATCH", node, [{"op": "remove", "path": "/spec/taints/x"}],
           content_type=JSON_PATCH, only=only)  # fmt: skip
