"""Role-based access control evaluated over the stored Roles, ClusterRoles and bindings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kubesim.apiserver.auth import MASTERS, User
from kubesim.apiserver.errors import StatusError
from kubesim.apiserver.store import Event, Store

Json = dict[str, Any]
_GROUP = "rbac.authorization.k8s.io"
_BINDINGS = f"rolebindings.{_GROUP}"
_CLUSTER_BINDINGS = f"clusterrolebindings.{_GROUP}"
_ROLES = f"roles.{_GROUP}"
_CLUSTER_ROLES = f"clusterroles.{_GROUP}"


@dataclass(frozen=True)
class Action:
    """A caller's request: on a resource, or on a bare `path` such as /metrics."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


@dataclass(frozen=True)
class Decision:
    """The answer to an action: allowed or not, and by what."""

    allowed: bool
    reason: str = ""


@dataclass(frozen=True)
class _Grant:
    """Rules a subject holds in a namespace ("" for everywhere), and the binding's description."""

    namespace: str
    rules: tuple[Json, ...]
    reason: str


class Rbac:
    """Decides what users may do; the index of bindings is rebuilt after RBAC objects change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._grants: dict[tuple[str, str], list[_Grant]] | None = None
        store.observers.append(self._changed)

    def _changed(self, key: str, _event: Event) -> None:
        if key.endswith(_GROUP):
            self._grants = None

    def decide(self, user: User, action: Action) -> Decision:
        """Return the decision on an action."""
        if MASTERS in user.groups:
            return Decision(True)
        for grant in self._of(user):
            if grant.namespace and (action.path or grant.namespace != action.namespace):
                continue
            if any(_covers(rule, action) for rule in grant.rules):
                return Decision(True, grant.reason)
        return Decision(False)

    def check(self, user: User, action: Action) -> None:
        """Refuse an action that the user is not allowed, by StatusError 403."""
        if not self.decide(user, action).allowed:
            raise denied(user, action)

    def rules(self, user: User, namespace: str) -> list[Json]:
        """Return every rule that holds for the user in a namespace."""
        if MASTERS in user.groups:
            everything = ["*"]
            return [
                {"verbs": everything, "apiGroups": everything, "resources": everything},
                {"verbs": everything, "nonResourceURLs": everything},
            ]
        grants = [grant for grant in self._of(user) if grant.namespace in ("", namespace)]
        return [rule for grant in grants for rule in grant.rules]

    def _of(self, user: User) -> Iterator[_Grant]:
        if self._grants is None:
            self._grants = self._index()
        yield from self._grants.get(("User", user.name), ())
        for group in user.groups:
            yield from self._grants.get(("Group", group), ())

    def _index(self) -> dict[tuple[str, str], list[_Grant]]:
        index: dict[tuple[str, str], list[_Grant]] = defaultdict(list)
        for key in (_CLUSTER_BINDINGS, _BINDINGS):
            for stored in self._store[key].all():
                binding = stored.obj
                rules = self._rules_of(binding["roleRef"], stored.namespace)
                for subject in binding.get("subjects") or []:
                    grant = _Grant(stored.namespace, rules, _why(binding, subject))
                    index[_subject(subject, stored.namespace)].append(grant)
        return index

    def _rules_of(self, ref: Json, namespace: str) -> tuple[Json, ...]:
        clusterwide = ref.get("kind") == "ClusterRole"
        role = self._store.get(_CLUSTER_ROLES if clusterwide else _ROLES, "" if clusterwide else namespace, ref["name"])
        return tuple(role.obj.get("rules") or ()) if role else ()


def _why(binding: Json, subject: Json) -> str:
    meta, ref = binding["metadata"], binding["roleRef"]
    kind = "RoleBinding" if meta.get("namespace") else "ClusterRoleBinding"
    shown = f"{meta['name']}/{meta['namespace']}" if meta.get("namespace") else meta["name"]
    who = subject.get("name", "")
    if subject.get("kind") == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or meta.get('namespace', '')}"
    role = f'{ref.get("kind")} "{ref["name"]}"'
    return f'RBAC: allowed by {kind} "{shown}" of {role} to {subject.get("kind")} "{who}"'


def _subject(subject: Json, namespace: str) -> tuple[str, str]:
    if subject.get("kind") == "ServiceAccount":
        return "User", f"system:serviceaccount:{subject.get('namespace') or namespace}:{subject.get('name')}"
    return subject.get("kind", ""), subject.get("name", "")


def _covers(rule: Json, action: Action) -> bool:
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and action.verb not in verbs:
        return False
    if action.path:
        urls = rule.get("nonResourceURLs") or ()
        return any(_url_matches(url, action.path) for url in urls)
    groups = rule.get("apiGroups") or ()
    if "*" not in groups and action.group not in groups:
        return False
    if not _resource_matches(rule.get("resources") or (), action.resource, action.subresource):
        return False
    names = rule.get("resourceNames")
    return not names or action.name in names


def _url_matches(url: str, path: str) -> bool:
    return url == path or (url.endswith("*") and path.startswith(url[:-1]))


def _resource_matches(resources: Any, resource: str, subresource: str) -> bool:
    if "*" in resources:
        return True
    if not subresource:
        return resource in resources
    return f"{resource}/{subresource}" in resources or f"*/{subresource}" in resources


def denied(user: User, action: Action) -> StatusError:
    """Return 403 in the real server's words."""
    if action.path:
        message = f'forbidden: User "{user.name}" cannot {action.verb} path "{action.path}"'
        return StatusError(403, "Forbidden", message, {})
    shown = action.resource + (f".{action.group}" if action.group else "")
    subject = f'{shown} "{action.name}"' if action.name else shown
    where = f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
    resource = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    message = (
        f'{subject} is forbidden: User "{user.name}" cannot {action.verb} resource "{resource}" '
        f'in API group "{action.group}" {where}'
    )
    details = {"name": action.name, "group": action.group, "kind": action.resource}
    return StatusError(403, "Forbidden", message, {key: value for key, value in details.items() if value})
