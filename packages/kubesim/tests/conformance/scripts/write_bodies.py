"""Bodies: other kinds, other places, other formats, no JSON; dry runs; strict, warning and silent field validation."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import JSON_PATCH, MERGE, STRATEGIC, Client
from tests.kubesim.conformance.scripts import script
from tests.kubesim.conformance.scripts.write_parts import why_not

Json = dict[str, Any]


@script
def bodies(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    c.send("a kind alone", "POST", configmaps, {"metadata": {"name": "kind"}, "kind": "ConfigMap"})
    c.send("a version alone", "POST", configmaps, {"metadata": {"name": "version"}, "apiVersion": "v1"})
    c.send("an empty object", "POST", configmaps, {})
    c.send("metadata is a list", "POST", configmaps, {"metadata": []})
    c.send("a name is a number", "POST", configmaps, {"metadata": {"name": 7}})
    c.send("labels are a list", "POST", configmaps, {"metadata": {"name": "one", "labels": ["a"]}})
    c.send("a label is a number", "POST", configmaps, {"metadata": {"name": "one", "labels": {"a": 1}}})
    c.send("data is a number", "POST", configmaps, {"metadata": {"name": "one"}, "data": {"k": 1}})
    c.send("data is a boolean", "POST", configmaps, {"metadata": {"name": "one"}, "data": {"k": True}})
    c.send("data is an object", "POST", configmaps, {"metadata": {"name": "one"}, "data": {"k": {}}})
    c.send("binary data is no base64", "POST", configmaps, {"metadata": {"name": "one"}, "binaryData": {"k": "!"}})
    jobs = f"/apis/batch/v1/namespaces/{c.ns}/jobs"
    c.send("a number is a string", "POST", jobs, {"metadata": {"name": "j"}, "spec": {"parallelism": "2"}})
    c.send("a number is a fraction", "POST", jobs, {"metadata": {"name": "j"}, "spec": {"parallelism": 1.5}})
    c.send("a number is too large", "POST", jobs, {"metadata": {"name": "j"}, "spec": {"parallelism": 3000000000}})
    c.send("a boolean is a string", "POST", jobs, {"metadata": {"name": "j"}, "spec": {"suspend": "yes"}})
    c.send("a spec is a list", "POST", jobs, {"metadata": {"name": "j"}, "spec": []})
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    c.send("containers are an object", "POST", pods, {"metadata": {"name": "p"}, "spec": {"containers": {}}})
    c.send("a container is a string", "POST", pods, {"metadata": {"name": "p"}, "spec": {"containers": ["c"]}})
    quantity = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "much"}}}]}
    c.send("a quantity is nonsense", "POST", pods, {"metadata": {"name": "p"}, "spec": quantity})
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases"
    c.send("a time is nonsense", "POST", leases, {"metadata": {"name": "l"}, "spec": {"renewTime": "now"}})
    c.send("a time is a number", "POST", leases, {"metadata": {"name": "l"}, "spec": {"renewTime": 5}})
    c.send("creationTimestamp is nonsense", "POST", configmaps, {"metadata": {"name": "t", "creationTimestamp": "now"}})


@script
def body_formats(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    charset = "application/json; charset=utf-8"
    c.send("a character set", "POST", configmaps, {"metadata": {"name": "charset"}}, content_type=charset)
    c.send("no format", "POST", configmaps, {"metadata": {"name": "formatless"}}, content_type="")


@script
def large_bodies(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"

    def size(body: Any) -> Any:
        return body if "data" not in body else len(body["data"]["k"])

    def send(step: str, length: int) -> None:
        content = f'{{"metadata":{{"name":"l{length}"}},"data":{{"k":"{"x" * length}"}}}}'.encode()
        c.send(step, "POST", configmaps, content, only=size)
        # The record needs no megabytes.
        c.exchanges[-1]["request"]["body"] = f"{length} bytes of data"

    send("just data enough", 1024 * 1024 - 1)
    send("too much data", 1024 * 1024)
    send("too large a request", 3 * 1024 * 1024 + 1)
    annotation = {"metadata": {"name": "a", "annotations": {"a": "x" * (256 * 1024)}}}
    c.send("too large annotations", "POST", configmaps, annotation, only=lambda body: [
        body["code"], body["reason"], body["details"]])  # fmt: skip
    c.exchanges[-1]["request"]["body"] = "256 KiB of annotations"


@script
def dry_runs(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    dry = {"dryRun": "All"}
    c.send("create", "POST", configmaps, {"metadata": {"name": "dry"}, "data": {"k": "v"}}, query=dry)
    c.get("nothing was created", f"{configmaps}/dry")
    real = c.send("a real one", "POST", configmaps, {"metadata": {"name": "real"}, "data": {"k": "v"}})
    c.send("patch", "PATCH", f"{configmaps}/real", {"data": {"k": "w"}}, content_type=MERGE, query=dry)
    c.send("update", "PUT", f"{configmaps}/real", {"metadata": {"name": "real"}}, query=dry)
    stale = {"metadata": {"name": "real", "resourceVersion": "1"}}
    c.send("a stale update", "PUT", f"{configmaps}/real", stale, query=dry)
    c.send("delete", "DELETE", f"{configmaps}/real", query=dry)
    c.send("delete of nothing", "DELETE", f"{configmaps}/nothing", query=dry)
    assert c.get("unchanged", f"{configmaps}/real").rv == real.rv
    c.send("no such dry run", "POST", configmaps, {"metadata": {"name": "x"}}, query={"dryRun": "Some"})
    c.send("an empty dry run", "POST", configmaps, {"metadata": {"name": "x"}}, query={"dryRun": ""})
    c.send("two dry runs", "POST", f"{configmaps}?dryRun=All&dryRun=All", {"metadata": {"name": "y"}})
    c.send("a patch with no such dry run", "PATCH", f"{configmaps}/real", {}, content_type=MERGE, query={"dryRun": "x"})
    c.send("a delete with no such dry run", "DELETE", f"{configmaps}/real", query={"dryRun": "x"})
    c.send("a delete with a dry run in the body", "DELETE", f"{configmaps}/real", {"dryRun": ["All"]})
    c.send("a delete with no such dry run in the body", "DELETE", f"{configmaps}/real", {"dryRun": ["x"]})
    c.send("delete them all", "DELETE", configmaps, query={**dry, "labelSelector": "!nothing"}, only=lambda body: [
        item["metadata"]["name"] for item in body["items"]])  # fmt: skip
    c.get("still there", f"{configmaps}/real")
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    c.send("a pod", "POST", pods, pod, query=dry)
    c.do("POST", pods, {**pod, "spec": {**pod["spec"], "nodeName": "dry-runs-1"}})
    c.send("delete a pod", "DELETE", f"{pods}/p", query=dry)
    c.get("the pod is unchanged", f"{pods}/p", only=lambda body: sorted(body["metadata"]))


@script
def field_validation(c: Client) -> None:
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    containers = [{"name": "c", "image": "i", "restartPolice": "x", "ports": [{"containerPort": 1, "prot": "TCP"}]}]
    unknown = {
        "metadata": {"name": "p", "lables": {}},
        "spec": {"containers": containers, "nodename": "n"},
        "extra": {"a": 1},
    }

    def spec(body: Any) -> Any:
        return body if body.get("kind") == "Status" else {"fields": sorted(body), "spec": sorted(body["spec"]),
            "container": sorted(body["spec"]["containers"][0]), "metadata": sorted(body["metadata"])}  # fmt: skip

    for level in ("Ignore", "Warn", "Strict"):
        query = {"fieldValidation": level, "dryRun": "All"}
        c.send(f"unknown fields: {level}", "POST", pods, unknown, query=query, only=spec)
    c.send("unknown fields: by default", "POST", pods, unknown, query={"dryRun": "All"}, only=spec)
    c.send("no such level", "POST", pods, unknown, query={"fieldValidation": "Nonsense"})
    c.send("an empty level", "POST", pods, unknown, query={"fieldValidation": "", "dryRun": "All"}, only=spec)
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    c.send("another case is another field", "POST", configmaps,
           {"Metadata": {"name": "x"}, "metadata": {"name": "one"}},
           query={"fieldValidation": "Strict"})  # fmt: skip
    c.do("POST", configmaps, {"metadata": {"name": "one"}})
    strict = {"fieldValidation": "Strict"}
    bad: Json = {"metadata": {"name": "one"}, "dat": {}}
    c.send("an update", "PUT", f"{configmaps}/one", bad, query=strict)
    c.send(
        "a merge patch",
        "PATCH",
        f"{configmaps}/one",
        {"dat": {"a": "b"}},
        content_type=MERGE,
        query=strict,
        only=why_not,
    )
    c.send("a merge patch, silently", "PATCH", f"{configmaps}/one", {"dat": {"a": "b"}, "data": {"k": "v"}},
           content_type=MERGE)  # fmt: skip
    c.send("a merge patch, with a warning", "PATCH", f"{configmaps}/one", {"dat": {"a": "b"}}, content_type=MERGE,
           query={"fieldValidation": "Warn"})  # fmt: skip
    c.send("a strategic patch", "PATCH", f"{configmaps}/one", {"dat": {"a": "b"}}, content_type=STRATEGIC, query=strict,
           only=why_not)  # fmt: skip
    c.send("a JSON patch", "PATCH", f"{configmaps}/one", [{"op": "add", "path": "/dat", "value": 1}],
           content_type=JSON_PATCH, query=strict, only=why_not)  # fmt: skip
    c.send(
        "a wrong type in a patch", "PATCH", f"{configmaps}/one", {"data": {"k": 5}}, content_type=MERGE, only=why_not
    )
    c.send(
        "a wrong type in a strategic patch", "PATCH", f"{configmaps}/one", {"data": {"k": 5}}, content_type=STRATEGIC
    )
    c.send("a wrong type in a JSON patch", "PATCH", f"{configmaps}/one", [{"op": "add", "path": "/data", "value": 1}],
           content_type=JSON_PATCH, only=why_not)  # fmt: skip
    nested = {
        "spec": {"template": {"spec": {"containers": [{"name": "a", "imagee": "b"}, {"nam": "c"}]}}},
        "metadata": {"name": "j"},
    }
    c.send("nested in lists", "POST", f"/apis/batch/v1/namespaces/{c.ns}/jobs", nested, query=strict)
    c.send("delete options", "DELETE", f"{configmaps}/one", {"gracePeriod": 5}, query={"dryRun": "All"})
