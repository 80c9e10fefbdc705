"""The DaemonSet controller's decisions, as pure functions."""

from __future__ import annotations

import copy
import hashlib
import math
from dataclasses import dataclass, field

import orjson

from kubesim.client import Object
from kubesim.controllers.conditions import holds
from kubesim.controllers.pods import is_terminal, is_terminating
from kubesim.controllers.taints import NO_EXECUTE, NO_SCHEDULE, node_taints, untolerated
from kubesim.selectors import matches_node, node_affinity

HASH_LABEL = "controller-revision-hash"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

# kube-controller-manager gives these tolerations to every daemon pod (pkg/controller/daemon/util,
# AddOrUpdateDaemonPodTolerations).
DAEMON_TOLERATIONS = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": NO_EXECUTE},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": NO_EXECUTE},
    {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": NO_SCHEDULE},
    {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": NO_SCHEDULE},
    {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": NO_SCHEDULE},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": NO_SCHEDULE},
)
HOST_NETWORK_TOLERATION = {
    "key": "node.kubernetes.io/network-unavailable",
    "operator": "Exists",
    "effect": NO_SCHEDULE,
}


@dataclass(frozen=True)
class DaemonStep:
    """A reconcile's result: the status to store, nodes that get a pod, pods to delete (failed ones first)."""

    status: Object
    create_on: list[str] = field(default_factory=list)
    delete: list[Object] = field(default_factory=list)
    failed: list[Object] = field(default_factory=list)


def template_hash(daemonset: Object) -> str:
    """Return a name for the pod template's revision: our own hash, not Kubernetes' FNV, as it only has to differ."""
    content = orjson.dumps(daemonset["spec"]["template"], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(content).hexdigest()[:10]


def daemon_tolerations(spec: Object) -> list[Object]:
    own = list(spec.get("tolerations") or ())
    added = [*DAEMON_TOLERATIONS, *([HOST_NETWORK_TOLERATION] if spec.get("hostNetwork") else ())]
    return own + [dict(each) for each in added if each not in own]


def should_run(spec: Object, tolerations: list[Object], node: Object) -> tuple[bool, bool]:
    """Return (a pod belongs on this node, a pod already there may stay); `tolerations` as by `daemon_tolerations`."""
    if not matches_node(spec, node):
        return False, False
    taints = node_taints(node)
    start = untolerated(taints, tolerations, (NO_SCHEDULE, NO_EXECUTE)) is None
    return start, start or untolerated(taints, tolerations, (NO_EXECUTE,)) is None


def target_node(pod: Object) -> str | None:
    """Return the node that a daemon pod is bound to, or that its affinity pins it to."""
    if name := pod["spec"].get("nodeName"):
        return str(name)
    for term in (node_affinity(pod["spec"]).get(REQUIRED) or {}).get("nodeSelectorTerms") or ():
        for each in term.get("matchFields") or ():
            if each["key"] == "metadata.name":
                return str(each["values"][0])
    return None


def next_step(daemonset: Object, pods: list[Object], nodes: list[Object]) -> DaemonStep:
    """Decide everything about one DaemonSet from its pods and all nodes."""
    spec = daemonset["spec"]["template"]["spec"]
    tolerations = daemon_tolerations(spec)
    wanted = template_hash(daemonset)
    by_node: dict[str, list[Object]] = {}
    for pod in pods:
        by_node.setdefault(target_node(pod) or "", []).append(pod)
    create: list[str] = []
    delete: list[Object] = []
    failed: list[Object] = []
    kept: dict[str, Object] = {}
    misplaced = 0
    desired: set[str] = set()
    for node in nodes:
        name = node["metadata"]["name"]
        here = by_node.pop(name, [])
        start, stay = should_run(spec, tolerations, node)
        if start:
            desired.add(name)
        ended = [pod for pod in here if is_terminal(pod) and not is_terminating(pod)]
        living = sorted((p for p in here if not is_terminal(p) and not is_terminating(p)), key=_oldest_first)
        if start and not here:
            create.append(name)
        elif start:
            failed += ended
        if not start and living:
            misplaced += 1
        delete += living[1:] if stay else living
        if stay and living:
            kept[name] = living[0]
    on_desired = {name: pod for name, pod in kept.items() if name in desired}
    delete += _outdated(daemonset, on_desired, len(desired), wanted)
    status = _status(daemonset, on_desired, len(desired), misplaced, wanted)
    return DaemonStep(status=status, create_on=create, delete=delete, failed=failed)


def _oldest_first(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]


def _outdated(daemonset: Object, kept: dict[str, Object], desired: int, wanted: str) -> list[Object]:
    """Return the pods of an older template that may be replaced now within maxUnavailable (default 1)."""
    strategy = daemonset["spec"].get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return []
    allowed = share((strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1), desired) or 1
    old = [pod for _, pod in sorted(kept.items()) if (pod["metadata"].get("labels") or {}).get(HASH_LABEL) != wanted]
    broken = [pod for pod in old if not holds(pod, "Ready")]
    healthy = [pod for pod in old if holds(pod, "Ready")]
    available = sum(1 for pod in kept.values() if holds(pod, "Ready"))
    return broken + healthy[: max(0, allowed - (desired - available))]


def share(value: int | str, whole: int) -> int:
    """Return a number, or a percentage of a whole, rounded up. Raises ValueError."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * whole / 100)
    return int(value)


def _status(daemonset: Object, kept: dict[str, Object], desired: int, misplaced: int, wanted: str) -> Object:
    ready = sum(1 for pod in kept.values() if holds(pod, "Ready"))
    updated = sum(1 for pod in kept.values() if (pod["metadata"].get("labels") or {}).get(HASH_LABEL) == wanted)
    status: Object = {
        **(daemonset.get("status") or {}),
        "currentNumberScheduled": len(kept),
        "numberMisscheduled": misplaced,
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        "updatedNumberScheduled": updated,
        "numberAvailable": ready,
        "numberUnavailable": desired - ready,
        "observedGeneration": daemonset["metadata"].get("generation", 1),
    }
    for name in ("updatedNumberScheduled", "numberAvailable", "numberUnavailable"):  # omitempty in the API
        if not status[name]:
            del status[name]
    return status


def pod_for(daemonset: Object, node: str) -> Object:
    """Return a new daemon pod with affinity to the node's name, so that the scheduler binds it there."""
    meta, template = daemonset["metadata"], daemonset["spec"]["template"]
    given = template.get("metadata") or {}
    spec = copy.deepcopy(template["spec"])
    spec["tolerations"] = daemon_tolerations(spec)
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    # The template's selection is applied already; the pin replaces its required terms, as upstream does.
    affinity[REQUIRED] = {"nodeSelectorTerms": [pin]}
    generation = str(meta.get("generation", 1))
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{meta['name']}-",
            "namespace": meta["namespace"],
            "labels": {
                **(given.get("labels") or {}),
                HASH_LABEL: template_hash(daemonset),
                "pod-template-generation": generation,
            },
            "annotations": dict(given.get("annotations") or {}),
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": spec,
    }
