"""GET and LIST of single objects and collections, and what is said of paths and methods that nothing answers to."""

from __future__ import annotations

from tests.kubesim.conformance.exchange import Client
from tests.kubesim.conformance.scripts import script


@script
def get_and_list(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    c.do("POST", configmaps, {"metadata": {"name": "one", "labels": {"a": "b"}}, "data": {"k": "v"}})
    c.get("an object", f"{configmaps}/one")
    c.get("no such object", f"{configmaps}/nobody")
    c.get("no such object in a group", f"/apis/batch/v1/namespaces/{c.ns}/jobs/nobody")
    c.get("no such cluster object", "/api/v1/nodes/nobody")
    c.get("a list by label", configmaps, {"labelSelector": "a=b"})
    c.get("an empty list", f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases")
    c.get("a list in a namespace that does not exist", "/api/v1/namespaces/nowhere/pods")
    c.get("an object in a namespace that does not exist", "/api/v1/namespaces/nowhere/pods/x")
    c.get("a namespace", f"/api/v1/namespaces/{c.ns}")
    c.get("an object at a version", f"{configmaps}/one", {"resourceVersion": "0"})
    c.get("an object at a version to come", f"{configmaps}/one", {"resourceVersion": "999999999"})
    c.get("an object at a malformed version", f"{configmaps}/one", {"resourceVersion": "abc"})


@script
def paths(c: Client) -> None:
    space = f"/api/v1/namespaces/{c.ns}"
    c.do("POST", f"{space}/configmaps", {"metadata": {"name": "one"}})
    c.get("no such resource", "/api/v1/nonsense")
    c.get("no such resource in a namespace", f"{space}/nonsense")
    c.get("no such named resource in a namespace", f"{space}/nonsense/x")
    c.get("no such resource in a group", "/apis/batch/v1/nonsense")
    c.get("no such version", "/api/v2/pods")
    c.get("no such version in a group", "/apis/batch/v2/jobs")
    c.get("no such group", "/apis/nonsense.example.com/v1/things")
    c.get("no such group's discovery", "/apis/nonsense.example.com")
    c.get("no such group version's discovery", "/apis/nonsense.example.com/v1")
    c.get("no such version's discovery", "/apis/batch/v2")
    c.get("nothing of the API", "/nonsense")
    c.get("no such subresource", f"{space}/configmaps/one/nonsense")
    c.get("no such subresource of a pod", f"{space}/pods/one/nonsense")
    c.get("below a subresource", f"{space}/pods/one/status/more")
    c.get("a cluster resource in a namespace", f"{space}/nodes")
    c.get("a namespaced object without its namespace", "/api/v1/pods/x")
    c.get("a trailing slash on a list", f"{space}/configmaps/", {"fieldSelector": "metadata.name=one"})
    c.get("a trailing slash on an object", f"{space}/configmaps/one/")
    c.get("an escaped name", f"{space}/configmaps/%6Fne")
    c.get("an escaped slash in a name", f"{space}/configmaps/a%2Fb")


@script
def methods(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    c.do("POST", configmaps, {"metadata": {"name": "one"}})
    merge = "application/merge-patch+json"
    c.send("HEAD of an object", "HEAD", f"{configmaps}/one")
    c.send("HEAD of no object", "HEAD", f"{configmaps}/nobody")
    c.send("HEAD of a list", "HEAD", configmaps)
    c.send("OPTIONS of a list", "OPTIONS", configmaps)
    c.send("PUT of a list", "PUT", configmaps, {"metadata": {"name": "one"}})
    c.send("PATCH of a list", "PATCH", configmaps, {}, content_type=merge)
    c.send("POST to an object", "POST", f"{configmaps}/one", {"metadata": {"name": "one"}})
    c.send("POST to no namespace", "POST", "/api/v1/configmaps", {"metadata": {"name": "one"}})
    c.send("DELETE of all namespaces' objects", "DELETE", "/api/v1/configmaps")
    c.send("DELETE of all namespaces", "DELETE", "/api/v1/namespaces")
    c.get("GET of a review", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
    c.get("GET of an eviction", f"/api/v1/namespaces/{c.ns}/pods/x/eviction")
    c.get("GET of a token", f"/api/v1/namespaces/{c.ns}/serviceaccounts/default/token")
    c.send("POST to a status", "POST", f"/api/v1/namespaces/{c.ns}/pods/x/status", {})
    c.send("DELETE of a status", "DELETE", f"/api/v1/namespaces/{c.ns}/pods/x/status")
    c.send("PUT of a log", "PUT", f"/api/v1/namespaces/{c.ns}/pods/x/log", {})
    c.send("POST to a discovery document", "POST", "/api/v1", {})
    c.send("POST to the version", "POST", "/version", {})
    c.send("POST to nothing of the API", "POST", "/nonsense", {})
    c.send("a method of WebDAV", "PROPFIND", configmaps)
