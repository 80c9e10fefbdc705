"""Messages about everything that a real cluster does and kubesim does not.

Kinds and requests that are not served are refused. An object with a part that has no effect here is stored; each write
of it is answered with a Warning header, which kubectl prints, and a new one gets an Event for `kubectl describe`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubesim.apiserver.resources import UNSERVED

Json = dict[str, Any]

EVENT_REASON = "NotSimulated"
_INSTEAD = "is not simulated by kubesim; `gameday lab up` runs a real API server"

# Parts of a Job's spec that kubesim's controller does not read.
_JOB_PARTS = ("backoffLimitPerIndex", "managedBy", "podFailurePolicy", "successPolicy")

_UNSERVED = {(resource.plural, resource.group): resource.kind for resource in UNSERVED}
# Plural and group of a resource → the subresources that only a real server has.
_SUBRESOURCES = {
    ("namespaces", ""): ("finalize",),
    ("pods", ""): ("attach", "ephemeralcontainers", "exec", "portforward", "proxy", "resize"),
    ("nodes", ""): ("proxy",),
}
GROUPS = frozenset(
    {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "autoscaling",
        "certificates.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "resource.k8s.io",
        "storage.k8s.io",
    }
)
"""API groups of a real server that kubesim does not serve."""


def sentence(what: str) -> str:
    """Return the sentence that something is not simulated; `what` is a singular phrase."""
    return f"{what} {_INSTEAD}"


def refusal(group: str, plural: str, subresource: str) -> str | None:
    """Return the refusal for a path that only a real server has; None for any other."""
    if group in GROUPS:
        return sentence(f"the API group {group}")
    if (plural, group) in _UNSERVED:
        return sentence(f"the kind {_UNSERVED[plural, group]}")
    if subresource in _SUBRESOURCES.get((plural, group), ()):
        return sentence(f"{plural}/{subresource}")
    return None


def notices(qualified: str, obj: Json) -> list[str]:
    """Return a sentence for each thing that a real cluster would do with the object and kubesim does not."""
    parts = _PARTS.get(qualified)
    return [sentence(what) for what in dict.fromkeys(parts(obj) if parts else ())]


def _cluster_role(role: Json) -> Iterator[str]:
    if role.get("aggregationRule") is not None:
        yield "aggregating ClusterRoles"


def _daemonset(daemonset: Json) -> Iterator[str]:
    rolling = (daemonset["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    if rolling.get("maxSurge") not in (None, 0, "0%"):
        yield "a DaemonSet's maxSurge"
    yield from _pod_spec(daemonset["spec"]["template"].get("spec") or {})


def _job(job: Json) -> Iterator[str]:
    spec = job["spec"]
    if spec.get("completionMode") == "Indexed":
        yield "a Job's completionMode Indexed"
    yield from (f"a Job's {part}" for part in _JOB_PARTS if spec.get(part) is not None)
    yield from _pod_spec(spec["template"].get("spec") or {})


def _namespace(namespace: Json) -> Iterator[str]:
    labels = namespace["metadata"].get("labels") or {}
    if labels.get("pod-security.kubernetes.io/enforce", "privileged") != "privileged":
        yield "enforcing a namespace's pod security level"


def _pod(pod: Json) -> Iterator[str]:
    yield from _pod_spec(pod["spec"])


def _pod_spec(spec: Json) -> Iterator[str]:
    affinity = spec.get("affinity") or {}
    if affinity.get("podAffinity"):
        yield "pod affinity"
    if affinity.get("podAntiAffinity"):
        yield "pod anti-affinity"
    if spec.get("topologySpreadConstraints"):
        yield "spreading pods over a topology"
    if spec.get("resourceClaims"):
        yield "dynamic resource allocation"


def _priority_class(item: Json) -> Iterator[str]:
    if item.get("preemptionPolicy") != "Never" and item.get("value", 0) > 0:
        yield "preemption"


def _secret(secret: Json) -> Iterator[str]:
    if secret.get("type") == "kubernetes.io/service-account-token":
        yield "filling Secrets with tokens"


_PARTS = {
    "clusterroles.rbac.authorization.k8s.io": _cluster_role,
    "daemonsets.apps": _daemonset,
    "jobs.batch": _job,
    "namespaces": _namespace,
    "pods": _pod,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "secrets": _secret,
}
