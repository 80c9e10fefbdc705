"""The objects and requests that kubesim takes or refuses without acting on them, and its words for that.

Objects that nobody acts on are stored. Each write of one is answered with a Warning header, which kubectl prints, and
a new one gets an Event, which `kubectl describe` shows. Requests for what is not there are refused in the same words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

EVENT_REASON = "NotSimulated"
_INSTEAD = "is not simulated by kubesim; `gameday lab up` runs a real API server"

# Store key of a kind → what a real cluster would do with its objects.
_KINDS = {
    "cronjobs.batch": "the CronJob controller",
    "csinodes.storage.k8s.io": "attaching volumes by CSI",
    "deployments.apps": "the Deployment controller",
    "deviceclasses.resource.k8s.io": "dynamic resource allocation",
    "endpoints": "the network behind Services",
    "endpointslices.discovery.k8s.io": "the network behind Services",
    "limitranges": "enforcing LimitRanges",
    "persistentvolumeclaims": "binding PersistentVolumeClaims",
    "persistentvolumes": "binding PersistentVolumeClaims",
    "replicasets.apps": "the ReplicaSet controller",
    "resourceclaims.resource.k8s.io": "dynamic resource allocation",
    "resourceclaimtemplates.resource.k8s.io": "dynamic resource allocation",
    "resourcequotas": "enforcing ResourceQuotas",
    "resourceslices.resource.k8s.io": "dynamic resource allocation",
    "services": "the network behind Services",
    "statefulsets.apps": "the StatefulSet controller",
    "storageclasses.storage.k8s.io": "provisioning volumes",
}
# Parts of a Job's spec that its controller here does not read.
_JOB_PARTS = ("backoffLimitPerIndex", "managedBy", "podFailurePolicy", "successPolicy")

# Plural and group of a resource → the subresources that a real server has beside ours.
_SUBRESOURCES = {
    ("pods", ""): ("attach", "ephemeralcontainers", "exec", "portforward", "proxy", "resize"),
    ("nodes", ""): ("proxy",),
    ("services", ""): ("proxy",),
}
GROUPS = frozenset(
    {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "autoscaling",
        "certificates.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
    }
)
"""API groups of a real server that kubesim does not serve."""


def sentence(what: str) -> str:
    """Return the sentence about something that is not simulated; `what` is a singular phrase."""
    return f"{what} {_INSTEAD}"


def refusal(group: str, plural: str, subresource: str) -> str | None:
    """Return the refusal of a path that only a real server has, None for any other."""
    if group in GROUPS:
        return sentence(f"the API group {group}")
    if subresource in _SUBRESOURCES.get((plural, group), ()):
        return sentence(f"{plural}/{subresource}")
    return None


def notices(store_key: str, obj: Json) -> list[str]:
    """Return a sentence for everything that a real cluster would do with the object and kubesim does not."""
    found = [_KINDS[store_key]] if store_key in _KINDS else []
    parts = _PARTS.get(store_key)
    return [sentence(what) for what in dict.fromkeys([*found, *(parts(obj) if parts else ())])]


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
    "pods": _pod,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "secrets": _secret,
}
