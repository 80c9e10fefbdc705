"""Facts about a pod that every controller needs, and the shared index of pods by node and by owner."""

from __future__ import annotations

from kubesim.client import Object, Reflector

JOB_TRACKING = "batch.kubernetes.io/job-tracking"


def is_terminal(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def is_terminating(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def pod_path(pod: Object) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def owner_of(obj: Object) -> Object | None:
    """Return the controlling ownerReference, if there is one."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Object = reference
            return found
    return None


class PodIndex:
    """Pods by node name and by controlling owner's uid, kept by the shared pod watch."""

    def __init__(self, pods: Reflector) -> None:
        self._by_node: dict[str, dict[str, Object]] = {}
        self._by_owner: dict[str, dict[str, Object]] = {}
        pods.on(self._put, self._replace, self._drop)

    def on_node(self, name: str) -> list[Object]:
        return list(self._by_node.get(name, {}).values())

    def owned_by(self, uid: str) -> list[Object]:
        return list(self._by_owner.get(uid, {}).values())

    def _put(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if node := pod["spec"].get("nodeName"):
            self._by_node.setdefault(node, {})[uid] = pod
        if owner := owner_of(pod):
            self._by_owner.setdefault(owner["uid"], {})[uid] = pod

    def _replace(self, old: Object, new: Object) -> None:
        self._drop(old)  # an orphaned pod has lost its owner
        self._put(new)

    def _drop(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._by_node.get(pod["spec"].get("nodeName") or "", {}).pop(uid, None)
        if owner := owner_of(pod):
            owned = self._by_owner.get(owner["uid"], {})
            owned.pop(uid, None)
            if not owned:
                self._by_owner.pop(owner["uid"], None)
