"""Service accounts' tokens, reviews of rights, and what one without the right is told."""

from __future__ import annotations

from typing import Any

import httpx

from tests.kubesim.conformance.exchange import Client
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
def subresource_rights(c: Client) -> None:
    """Rights that one may not give away, and groups without a user."""
    core = f"/api/v1/namespaces/{c.ns}"
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
