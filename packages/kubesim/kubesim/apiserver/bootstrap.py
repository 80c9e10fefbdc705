"""The state before the first request: identities and their kubeconfigs, namespaces, built-in roles."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from kubesim.apiserver.auth import MASTERS
from kubesim.apiserver.objects import Objects, Write
from kubesim.apiserver.resources import resource_named
from kubesim.apiserver.store import Event
from kubesim.kubeconfig import write_kubeconfig
from kubesim.private_file import write_private

Json = dict[str, Any]
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})

# Kubeconfig name → user and groups. The components have Kubernetes' own user names, for RBAC.
IDENTITIES: dict[str, Json] = {
    "admin": {"user": "kubesim-admin", "groups": [MASTERS]},
    "scheduler": {"user": "system:kube-scheduler", "groups": []},
    "controllers": {"user": "system:kube-controller-manager", "groups": []},
    "nodes": {"user": "system:node:virtual", "groups": ["system:nodes"]},
}
_RBAC = "rbac.authorization.k8s.io"
_BOOTSTRAP = Write("kube-apiserver")


def load_tokens(folder: Path) -> dict[str, Json]:
    """Return token → {"user", "groups"} from tokens.json, made on first use. People may add entries to the file."""
    path = folder / "tokens.json"
    if not path.exists():
        made = {secrets.token_urlsafe(24): identity for identity in IDENTITIES.values()}
        write_private(path, orjson.dumps(made, option=orjson.OPT_INDENT_2))
    found: dict[str, Json] = orjson.loads(path.read_bytes())
    return found


def write_kubeconfigs(folder: Path, static: Mapping[str, Json], url: str, ca: Path) -> None:
    """Write DIR/<name>.kubeconfig for every identity, as JSON, which every client reads as YAML."""
    by_user = {entry["user"]: token for token, entry in static.items()}
    authority = base64.b64encode(ca.read_bytes()).decode()
    for name, identity in IDENTITIES.items():
        if identity["user"] not in by_user:
            continue
        write_kubeconfig(
            folder / f"{name}.kubeconfig",
            name,
            cluster={"server": url, "certificate-authority-data": authority},
            user={"token": by_user[identity["user"]]},
        )


def _rule(groups: str, resources: str, verbs: str) -> Json:
    return {
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": resources.split(),
        "verbs": verbs.split(),
    }


_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"
_WORKLOADS = "apps batch policy core coordination.k8s.io events.k8s.io discovery.k8s.io resource.k8s.io"
_EVENTS = _rule("core events.k8s.io", "events", "create patch update")
_REVIEWS = _rule("authentication.k8s.io authorization.k8s.io", "tokenreviews subjectaccessreviews", "create")

# Generous versions of Kubernetes' bootstrap roles; scheduler, controllers and nodes need no more than theirs allow.
_ROLES: dict[str, list[Json]] = {
    "cluster-admin": [_rule("*", "*", "*"), {"nonResourceURLs": ["*"], "verbs": ["*"]}],
    "admin": [_rule(_WORKLOADS, "*", f"{_READ} {_WRITE}"), _rule(_RBAC, "roles rolebindings", f"{_READ} {_WRITE}")],
    "edit": [_rule(_WORKLOADS, "*", f"{_READ} {_WRITE}")],
    "view": [_rule("apps batch policy discovery.k8s.io events.k8s.io resource.k8s.io", "*", _READ),
             _rule("core", "configmaps endpoints events limitranges namespaces persistentvolumeclaims pods pods/log "
                   "pods/status resourcequotas serviceaccounts services", _READ)],
    "system:basic-user": [
        _rule("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
        _rule("authentication.k8s.io", "selfsubjectreviews", "create"),
    ],
    "system:discovery": [{"verbs": ["get"], "nonResourceURLs": [
        "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version",
        "/version/"]}],
    "system:public-info-viewer": [
        {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]}],
    "system:monitoring": [{"verbs": ["get"], "nonResourceURLs": ["/metrics", "/metrics/*"]}],
    "system:kube-scheduler": [
        _rule("*", "*", _READ), _EVENTS, _REVIEWS,
        _rule("core", "pods/binding bindings pods/status", "create patch update"),
        _rule("core", "pods", "delete"),
        _rule("coordination.k8s.io", "leases", "create get list patch update watch"),
        _rule("resource.k8s.io", "resourceclaims resourceclaims/status", "patch update"),
    ],
    "system:kube-controller-manager": [
        _rule("*", "*", _READ), _EVENTS, _REVIEWS,
        _rule("core", "nodes nodes/status pods pods/status pods/binding pods/eviction namespaces/finalize "
              "serviceaccounts serviceaccounts/token secrets configmaps endpoints", _WRITE),
        _rule("apps batch policy discovery.k8s.io resource.k8s.io coordination.k8s.io", "*", _WRITE),
    ],
    "system:node": [
        _rule("*", "*", _READ), _EVENTS, _REVIEWS,
        _rule("core", "nodes nodes/status pods pods/status pods/eviction serviceaccounts/token", _WRITE),
        _rule("coordination.k8s.io", "leases", _WRITE),
        _rule("storage.k8s.io", "csinodes", _WRITE),
        _rule("resource.k8s.io", "resourceslices", _WRITE),
    ],
}  # fmt: skip

_BINDINGS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "cluster-admin": ("cluster-admin", (("Group", MASTERS),)),
    "system:basic-user": ("system:basic-user", (("Group", "system:authenticated"),)),
    "system:discovery": ("system:discovery", (("Group", "system:authenticated"),)),
    "system:public-info-viewer": (
        "system:public-info-viewer",
        (("Group", "system:authenticated"), ("Group", "system:unauthenticated")),
    ),
    "system:monitoring": ("system:monitoring", (("Group", "system:monitoring"),)),
    "system:kube-scheduler": ("system:kube-scheduler", (("User", "system:kube-scheduler"),)),
    "system:kube-controller-manager": (
        "system:kube-controller-manager",
        (("User", "system:kube-controller-manager"),),
    ),
    "system:node": ("system:node", (("Group", "system:nodes"),)),
}

_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


class NamespaceFiller:
    """Gives every namespace what a real cluster's controllers put there: the default account and the CA."""

    def __init__(self, objects: Objects, ca: str) -> None:
        self._objects = objects
        self._ca = ca
        objects.store.observers.append(self._changed)

    def _changed(self, key: str, event: Event) -> None:
        if key == "namespaces" and event.type == "ADDED":
            self._fill(event.new.name)
        elif key == "serviceaccounts" and event.type == "DELETED" and event.new.name == "default":
            self._fill(event.new.namespace)

    def _fill(self, namespace: str) -> None:
        space = self._objects.store.get("namespaces", "", namespace)
        if space is None or "deletionTimestamp" in space.obj["metadata"]:
            return
        manager = Write("kube-controller-manager")
        if self._objects.store.get("serviceaccounts", namespace, "default") is None:
            self._objects.create(
                resource_named("serviceaccounts"), namespace, {"metadata": {"name": "default"}}, manager
            )
        if self._objects.store.get("configmaps", namespace, "kube-root-ca.crt") is None:
            root = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": self._ca}}
            self._objects.create(resource_named("configmaps"), namespace, root, manager)


def create_built_ins(objects: Objects) -> None:
    """Create the built-in objects that are absent; those that people changed stay as they are."""
    for namespace in NAMESPACES:
        _create_if_absent(objects, "namespaces", "", {"metadata": {"name": namespace}})
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    for name, rules in _ROLES.items():
        meta = {"name": name, "labels": dict(labels)}
        _create_if_absent(
            objects, "clusterroles", _RBAC, {"metadata": meta, "rules": orjson.loads(orjson.dumps(rules))}
        )
    for name, (role, subjects) in _BINDINGS.items():
        ref = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role}
        bound = [{"apiGroup": _RBAC, "kind": kind, "name": subject} for kind, subject in subjects]
        meta = {"name": name, "labels": dict(labels)}
        _create_if_absent(objects, "clusterrolebindings", _RBAC, {"metadata": meta, "roleRef": ref, "subjects": bound})
    for name, value in _PRIORITIES.items():
        _create_if_absent(objects, "priorityclasses", "scheduling.k8s.io", {"metadata": {"name": name}, "value": value})


def _create_if_absent(objects: Objects, plural: str, group: str, obj: Json) -> None:
    resource = resource_named(plural, group)
    if objects.store.get(resource.qualified, "", obj["metadata"]["name"]) is None:
        objects.create(resource, "", obj, _BOOTSTRAP)
