"""Who one is, what one may, and the words in which it is refused."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import MERGE, Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]
AUTHZ, AUTHN = "/apis/authorization.k8s.io/v1", "/apis/authentication.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def _rule(groups: str, resources: str, verbs: str, *names: str) -> Json:
    rule: Json = {"apiGroups": groups.split(","), "resources": resources.split(), "verbs": verbs.split()}
    return {**rule, "resourceNames": list(names)} if names else rule


def _robot(c: Client, *rules: Json) -> Client:
    """A service account of the script's namespace, allowed what the rules say there."""
    c.do("POST", f"/api/v1/namespaces/{c.ns}/serviceaccounts", {"metadata": {"name": "robot"}})
    spaced = f"{RBAC}/namespaces/{c.ns}"
    c.do("POST", f"{spaced}/roles", {"metadata": {"name": "robot"}, "rules": list(rules)})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "robot"}
    subjects = [{"kind": "ServiceAccount", "name": "robot", "namespace": c.ns}]
    c.do("POST", f"{spaced}/rolebindings", {"metadata": {"name": "robot"}, "roleRef": role, "subjects": subjects})
    token = c.do("POST", f"/api/v1/namespaces/{c.ns}/serviceaccounts/robot/token", {"spec": {}})["status"]["token"]
    robot = c.bearer(token)
    # The real server receives RBAC objects through its own watch.
    for rule in rules:
        about = {
            "namespace": c.ns,
            "verb": rule["verbs"][0],
            "group": rule["apiGroups"][0],
            "resource": rule["resources"][0],
        }
        about |= {"name": rule["resourceNames"][0]} if "resourceNames" in rule else {}
        robot.until_allowed(f"{AUTHZ}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": about}})
    return robot


@script
def unauthenticated(c: Client) -> None:
    pods, nobody, wrong = f"/api/v1/namespaces/{c.ns}/pods", c.anonymous(), c.bearer("nonsense")
    nobody.get("a list", pods)
    nobody.get("an object", f"{pods}/x")
    nobody.get("discovery", "/apis")
    nobody.get("metrics", "/metrics")
    nobody.get("nothing of the API", "/nonsense")
    nobody.send("a write", "POST", pods, {})
    nobody.send("a review of oneself", "POST", f"{AUTHN}/selfsubjectreviews", {})
    nobody.get("by name and password", pods, headers={"Authorization": "Basic YTpi"})
    nobody.get("by an empty token", pods, headers={"Authorization": "Bearer"})
    wrong.get("an unknown token", pods)
    wrong.get("an unknown token and the version", "/version")
    wrong.get("an unknown token and health", "/livez")
    jwt = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJub2JvZHkifQ.AAAA"
    c.bearer(jwt).get("another issuer's token", pods)


@script
def forbidden(c: Client) -> None:
    robot = _robot(
        c,
        _rule("", "configmaps", "get", "mine"),
        _rule("", "pods/log pods/eviction", "get"),
        _rule("batch", "jobs", "list"),
    )
    space, json = f"/api/v1/namespaces/{c.ns}", {"metadata": {"name": "x"}}
    c.do("POST", f"{space}/configmaps", {"metadata": {"name": "mine"}})
    robot.get("allowed by name", f"{space}/configmaps/mine")
    robot.get("allowed and not there", f"{space}/pods/x/log")
    robot.get("another name", f"{space}/configmaps/theirs")
    robot.get("a list", f"{space}/configmaps")
    robot.get("a list pinned to the allowed name", f"{space}/configmaps", {"fieldSelector": "metadata.name=mine"})
    robot.get("a list of all namespaces", "/api/v1/configmaps")
    robot.watch("a watch", f"{space}/configmaps", {"timeoutSeconds": "1"})
    robot.send("create", "POST", f"{space}/configmaps", json)
    robot.send("update", "PUT", f"{space}/configmaps/x", json)
    robot.send("patch", "PATCH", f"{space}/configmaps/x", {}, content_type=MERGE)
    robot.send("delete", "DELETE", f"{space}/configmaps/x")
    robot.send("deletecollection", "DELETE", f"{space}/configmaps")
    robot.get("a group", f"/apis/batch/v1/namespaces/{c.ns}/jobs/x")
    robot.get("a list of a group's, allowed", f"/apis/batch/v1/namespaces/{c.ns}/jobs")
    robot.get("a list of a group's elsewhere", "/apis/batch/v1/namespaces/default/jobs")
    robot.get("a cluster object", "/api/v1/nodes/x")
    robot.get("a list of cluster objects", "/api/v1/nodes")
    robot.send("a status of a cluster object", "PATCH", "/api/v1/nodes/x/status", {}, content_type=MERGE)
    robot.get("a subresource", f"{space}/pods/x/status")
    robot.send("an eviction", "POST", f"{space}/pods/x/eviction", {})
    robot.get("one's namespace", space)
    robot.send("another namespace's", "DELETE", "/api/v1/namespaces/default")
    robot.send("a new namespace", "POST", "/api/v1/namespaces", json)
    robot.get("metrics", "/metrics")
    robot.send("a write of metrics", "POST", "/metrics", {})
    robot.get("discovery", "/apis/batch/v1", only=lambda body: body["kind"])
    robot.get("nothing of the API", "/nonsense")
    robot.get("no such resource", f"{space}/nonsense")
    robot.get("no such subresource", f"{space}/pods/x/nonsense")
    robot.get("no such group", "/apis/nonsense.example.com/v1/things/x")
    robot.send("a method of WebDAV", "PROPFIND", f"{space}/configmaps")
    robot.send("HEAD", "HEAD", f"{space}/configmaps/x")
    robot.send("a token", "POST", f"{space}/serviceaccounts/robot/token", {})


@script
def impersonation(c: Client) -> None:
    robot = _robot(c, _rule("", "configmaps", "get"))
    me, configmaps = f"{AUTHN}/selfsubjectreviews", f"/api/v1/namespaces/{c.ns}/configmaps"

    def as_(**headers: str) -> dict[str, str]:
        return {f"Impersonate-{key.replace('_', '-')}": value for key, value in headers.items()}

    def who(body: Json) -> Any:
        return body.get("status", {}).get("userInfo") if body["kind"] != "Status" else body

    account = f"system:serviceaccount:{c.ns}:robot"
    c.send("a user", "POST", me, {}, headers=as_(User="alice"), only=who)
    c.send("a user and a group", "POST", me, {}, headers=as_(User="alice", Group="staff"), only=who)
    extra = as_(User="alice", Uid="7", Extra_Scopes="a", Group="staff")
    c.send("a user with all that there is", "POST", me, {}, headers=extra, only=who)
    c.send("a service account", "POST", me, {}, headers=as_(User=account), only=who)
    c.send("a service account and a group", "POST", me, {}, headers=as_(User=account, Group="staff"), only=who)
    c.send("nobody", "POST", me, {}, headers=as_(User="system:anonymous"), only=who)
    c.send("a group without a user", "POST", me, {}, headers=as_(Group="staff"), only=who)
    c.send("a node", "POST", me, {}, headers=as_(User="system:node:x", Group="system:nodes"), only=who)
    c.get("allowed", f"{configmaps}/nobody", headers=as_(User=account))
    c.get("forbidden", configmaps, headers=as_(User=account))
    robot.get("a user, forbidden", configmaps, headers=as_(User="alice"))
    robot.get("a group, forbidden", configmaps, headers=as_(User="alice", Group="staff"))
    robot.get("a service account, forbidden", configmaps, headers=as_(User=account))
    robot.get("a malformed service account, forbidden", configmaps, headers=as_(User="system:serviceaccount:x"))
    c.anonymous().get("by nobody", configmaps, headers=as_(User="alice"))


@script
def access_reviews(c: Client) -> None:
    robot = _robot(
        c, _rule("", "configmaps", "get list", "mine"), _rule("", "pods/log", "get"), _rule(",batch", "jobs", "*")
    )
    selves = f"{AUTHZ}/selfsubjectaccessreviews"

    def on(verb: str, resource: str, **more: str) -> Json:
        return {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": c.ns, **more}}

    for step, spec in {
        "an allowed name": on("get", "configmaps", name="mine"),
        "another name": on("get", "configmaps", name="other"),
        "no name": on("get", "configmaps"),
        "another namespace": on("get", "configmaps", name="mine", namespace="default"),
        "all namespaces": on("get", "configmaps", name="mine", namespace=""),
        "a subresource": on("get", "pods", subresource="log"),
        "another group": on("delete", "jobs", group="batch"),
        "all verbs": on("*", "jobs", group="batch"),
        "all resources": on("get", "*"),
        "a path": {"nonResourceAttributes": {"path": "/apis", "verb": "get"}},
        "a path that is refused": {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}},
        "nothing": {},
        "both": {**on("get", "pods"), "nonResourceAttributes": {"path": "/version", "verb": "get"}},
    }.items():
        robot.send(f"oneself: {step}", "POST", selves, {"spec": spec})
    robot.send(
        "oneself, with kind and version",
        "POST",
        selves,
        {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": on("get", "jobs")},
    )
    rules = f"{AUTHZ}/selfsubjectrulesreviews"

    def ours(body: Json) -> Any:
        """Without the rules that every real server adds to everybody's."""
        if body["kind"] == "Status":
            return body
        found = [rule for rule in body["status"]["resourceRules"] if rule["apiGroups"] in ([""], ["", "batch"])]
        return {**body, "status": {**body["status"], "resourceRules": found, "nonResourceRules": []}}

    robot.send("one's rules", "POST", rules, {"spec": {"namespace": c.ns}}, only=ours)
    robot.send("one's rules elsewhere", "POST", rules, {"spec": {"namespace": "default"}}, only=ours)
    robot.send("one's rules nowhere", "POST", rules, {"spec": {}})


@script
def identities(c: Client) -> None:
    robot = _robot(c)
    me, accounts = f"{AUTHN}/selfsubjectreviews", f"/api/v1/namespaces/{c.ns}/serviceaccounts"
    robot.send(
        "a service account", "POST", me, {}, only=lambda body: {**body, "status": _without_credential(body["status"])}
    )
    other = c.do("POST", f"{accounts}/robot/token", {"spec": {"audiences": ["example.com"]}})["status"]["token"]
    c.bearer(other).get("a request with another audience's token", accounts)


def _without_credential(status: Json, key: str = "userInfo") -> Json:
    """Without the name of the very credential, which no two tokens share."""
    extra = status.get(key, {}).get("extra", {})
    extra.pop("authentication.kubernetes.io/credential-id", None)
    return status
