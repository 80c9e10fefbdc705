"""The smallest rights for a proof, as a manifest to copy."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from gameday_prove.values import Unseen

NAMESPACE = "gameday-prove"
_LOOKS = (
    ("apps", "daemonsets", ("list",)),
    ("apps", "deployments", ("list",)),
    ("", "services", ("list",)),
    ("", "services/proxy", ("get",)),
    ("", "configmaps", ("get",)),
    ("coordination.k8s.io", "leases", ("list",)),
)
_PLAYS = (
    ("", "namespaces", ("get", "create", "delete")),
    ("", "nodes", ("list", "watch")),
    ("", "pods", ("list", "watch")),
    ("", "events", ("list", "watch")),
)
_IN_NAMESPACE = (
    ("", "pods", ("create", "delete", "list", "watch")),
    ("", "pods/log", ("get",)),
    ("", "configmaps", ("create", "list", "patch", "delete")),
    ("coordination.k8s.io", "leases", ("create", "get", "list", "patch", "delete")),
)


def missing_rights(unseen: Iterable[Unseen]) -> str:
    """Return a ClusterRole that lets a look see what it could not; empty if nothing was forbidden."""
    rules = [(one.group, one.resource, (one.verb,)) for one in unseen if one.verb]
    return _role("gameday-prove-look", rules) if rules else ""


def all_rights() -> str:
    """Return a ClusterRole with all that a proof uses; it writes only in a namespace that is not there yet."""
    return _role("gameday-prove", [*_PLAYS, *_LOOKS, *_IN_NAMESPACE])


def _role(name: str, rules: Iterable[tuple[str, str, tuple[str, ...]]]) -> str:
    merged: dict[tuple[str, str], list[str]] = {}
    for group, resource, verbs in rules:
        known = merged.setdefault((group, resource), [])
        known += [verb for verb in verbs if verb not in known]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [group], "resources": [resource], "verbs": verbs}
            for (group, resource), verbs in merged.items()
        ],
    }
    return yaml.safe_dump(role, sort_keys=False)
