"""Service accounts' tokens, reviews of rights, and what one without the right is told."""

from __future__ import annotations

from typing import Any

import httpx

from tests.kubesim.conformance.exchange import MERGE, Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]
NOBODY = "11111111-2222-3333-4444-555555555555"


@script
def subresource_tokens(c: Client) -> None:
    accounts = f"/api/v1/namespaces/{c.ns}/serviceaccounts"
    c.do("POST", accounts, {"metadata": {"name": "one"}})
    token = f"{accounts}/one/token"

    def ask(step: str, spec: Json, **options: Any) -> Any:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return c.send(step, "POST", token, body, **options).body

    plain = ask("plain", {})
    ask("an audience", {"audiences": ["vault"], "expirationSeconds": 600})
    ask("too short", {"expirationSeconds": 599})
    ask("long", {"expirationSeconds": 4294967296})
    ask("too long", {"expirationSeconds": 4294967297})
    ask("negative", {"expirationSeconds": -1})
    ask("no number", {"expirationSeconds": "soon"})
    ask("dry", {}, query={"dryRun": "All"})
    pod = f"/api/v1/namespaces/{c.ns}/pods"
    spec = {"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "one"}
    bound = c.do("POST", pod, {"metadata": {"name": "p"}, "spec": spec})
    ref = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": bound["metadata"]["uid"]}
    ask("bound to a pod", {"boundObjectRef": ref})
    ask("bound to another uid", {"boundObjectRef": {**ref, "uid": NOBODY}})
    ask("bound to no such pod", {"boundObjectRef": {**ref, "name": "q"}})
    ask("bound to a kind that may not", {"boundObjectRef": {**ref, "kind": "ConfigMap"}})
    c.send("an empty body", "POST", token, {})
    c.send("of nothing", "POST", f"{accounts}/nobody/token", {"spec": {}})
    c.bearer(plain["status"]["token"]).get("who it is", f"/api/v1/namespaces/{c.ns}/configmaps")
    unused = ask("bound to a pod that ends", {"boundObjectRef": ref})
    c.do("DELETE", f"{pod}/p", {"gracePeriodSeconds": 0})
    left = c.bearer(unused["status"]["token"])
    path = f"/api/v1/namespaces/{c.ns}/configmaps"
    left.until(path, lambda body: body is not None and body.get("code") == httpx.codes.UNAUTHORIZED)
    left.get("its pod is gone", path)


@script
def subresource_reviews(c: Client) -> None:
    """Questions about rights."""
    authz = "/apis/authorization.k8s.io/v1"
    attributes = {"verb": "get", "resource": "pods", "namespace": c.ns}

    def ask(step: str, plural: str, spec: Json, **options: Any) -> None:
        kind = {"selfsubjectaccessreviews": "SelfSubjectAccessReview",
                "selfsubjectrulesreviews": "SelfSubjectRulesReview"}[plural]  # fmt: skip
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": {}, "spec": spec}
        c.send(step, "POST", f"{authz}/{plural}", body, **options)

    other = {"headers": {"Impersonate-User": "conformance-nobody"}}
    ask("another may not", "selfsubjectaccessreviews", {"resourceAttributes": attributes}, **other)
    ask("of nothing", "selfsubjectaccessreviews", {})
    ask(
        "of both",
        "selfsubjectaccessreviews",
        {"resourceAttributes": attributes, "nonResourceAttributes": {"path": "/"}},
    )
    ask(
        "a path", "selfsubjectaccessreviews", {"nonResourceAttributes": {"path": "/openapi/v2", "verb": "get"}}, **other
    )
    ask(
        "a path that may not",
        "selfsubjectaccessreviews",
        {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}},
        **other,
    )
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{c.ns}"
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
             {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"], "verbs": ["*"]}]  # fmt: skip
    c.do("POST", f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
    c.do("POST", f"{rbac}/rolebindings", {"metadata": {"name": "b"}, "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [
        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "conformance-reader"}]})  # fmt: skip
    reader = {"Impersonate-User": "conformance-reader"}
    c.until_allowed(f"{authz}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": attributes}}, reader)
    named = {"verb": "delete", "resource": "configmaps", "namespace": c.ns, "name": "one"}
    for step, asked in {
        "by a role": attributes,
        "by a role, a subresource": {**attributes, "subresource": "log"},
        "by a role, another subresource": {**attributes, "subresource": "exec"},
        "by a role, a name": named,
        "by a role, another name": {**named, "name": "two"},
    }.items():
        ask(step, "selfsubjectaccessreviews", {"resourceAttributes": asked}, headers=reader)
    ask("rules", "selfsubjectrulesreviews", {"namespace": c.ns}, headers={"Impersonate-User": "conformance-reader"},
        only=lambda body: [rule for rule in body["status"]["resourceRules"]
                           if "pods" in rule["resources"] or "resourceNames" in rule])  # fmt: skip
    ask("rules without a namespace", "selfsubjectrulesreviews", {})
    c.send("who am I", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, headers={
        "Impersonate-User": "conformance-reader", "Impersonate-Group": "g"},
        only=lambda body: body["status"])  # fmt: skip


@script
def subresource_rights(c: Client) -> None:
    """Refusals: by RBAC, of what one may not give away, and by impersonation."""
    nobody = {"Impersonate-User": "conformance-nobody"}
    core = f"/api/v1/namespaces/{c.ns}"
    for step, method, path in (
        ("get a pod", "GET", f"{core}/pods/p"), ("list pods", "GET", f"{core}/pods"),
        ("list all pods", "GET", "/api/v1/pods"),
        ("create a pod", "POST", f"{core}/pods"), ("update a lease", "PUT",
                                                   f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases/l"),
        ("patch a node", "PATCH", "/api/v1/nodes/n"), ("patch a node's status", "PATCH", "/api/v1/nodes/n/status"),
        ("evict", "POST", f"{core}/pods/p/eviction"), ("read a log", "GET", f"{core}/pods/p/log"),
        ("delete jobs", "DELETE", f"/apis/batch/v1/namespaces/{c.ns}/jobs"), ("read metrics", "GET", "/metrics"),
        ("read a path that does not exist", "GET", "/nonsense"),
        ("get a namespace", "GET", f"/api/v1/namespaces/{c.ns}"),
        ("list a kind that does not exist", "GET", "/apis/apps/v1/nonsense"), ("read health", "GET", "/readyz"),
        ("make a token", "POST", f"{core}/serviceaccounts/default/token"),
    ):  # fmt: skip
        body = {} if method in ("POST", "PUT", "PATCH") else None
        c.send(
            f"nobody: {step}",
            method,
            path,
            body,
            content_type=MERGE if method == "PATCH" else "application/json",
            headers=nobody,
        )
    c.get("nobody: watch", f"{core}/pods", {"watch": "1"}, headers=nobody)
    account = {"Impersonate-User": f"system:serviceaccount:{c.ns}:default"}
    c.get("an account", f"{core}/pods", headers=account)
    c.get("groups without a user", f"{core}/pods", headers={"Impersonate-Group": "g"})
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    c.do("POST", f"{rbac}/namespaces/{c.ns}/roles", {"metadata": {"name": "editor"}, "rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"],
         "verbs": ["*"]}]})  # fmt: skip
    c.do("POST", f"{rbac}/namespaces/{c.ns}/rolebindings", {"metadata": {"name": "editor"}, "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "editor"}, "subjects": [
        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "conformance-editor"}]})  # fmt: skip
    writes = {"verb": "create", "group": "rbac.authorization.k8s.io", "resource": "rolebindings", "namespace": c.ns}
    editor = {"Impersonate-User": "conformance-editor"}
    review = {"spec": {"resourceAttributes": writes}}
    c.until_allowed("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, editor)
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    c.send("a role beyond one's own", "POST", f"{rbac}/namespaces/{c.ns}/roles", {
        "metadata": {"name": "more"}, "rules": [rule]}, headers=editor)  # fmt: skip
    c.send("a binding beyond one's own", "POST", f"{rbac}/namespaces/{c.ns}/rolebindings", {
        "metadata": {"name": "more"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                                                  "name": "view"},
        "subjects": []}, headers=editor, only=lambda body: [body.get("status"), body.get("reason")])  # fmt: skip
