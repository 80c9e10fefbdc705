"""Paths below an object that do more than write it: eviction, binding, tokens, scale, finalize."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gameday.rehearsal.apiserver import errors
from gameday.rehearsal.apiserver.auth import DEFAULT_TOKEN_S, Authenticator
from gameday.rehearsal.apiserver.codec import check_kind
from gameday.rehearsal.apiserver.deletion import DeleteOptions, Deleter
from gameday.rehearsal.apiserver.objects import Objects, Write, now
from gameday.rehearsal.apiserver.resources import Resource, of
from gameday.rehearsal.apiserver.selectors import matches_label_selector
from gameday.rehearsal.apiserver.store import Stored

Json = dict[str, Any]
SUCCESS: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_PODS = of("pods")
_PDBS = of("poddisruptionbudgets", "policy")
# Real server's maximum of status.disruptedPods before it refuses further evictions.
_MAX_DISRUPTED = 2000
_RETRY_S = 10


def _set_condition(pod: Json, condition: Json) -> Json:
    """The pod's status with one condition replaced."""
    status = pod.get("status") or {}
    others = [item for item in status.get("conditions") or [] if item.get("type") != condition["type"]]
    return {**status, "conditions": [*others, {**condition, "lastTransitionTime": now()}]}


def _condition(obj: Json, kind: str) -> str:
    for condition in (obj.get("status") or {}).get("conditions") or []:
        if condition.get("type") == kind:
            return str(condition.get("status"))
    return ""


class Binder:
    """pods/binding: what a scheduler calls."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def bind(self, namespace: str, name: str, body: Json, write: Write) -> Json:
        """Assign the pod to body.target. Raises ApiError 400, 404 or 409."""
        check_kind(body, "v1", "Binding")
        target = body.get("target") or {}
        if target.get("kind", "Node") != "Node" or not target.get("name"):
            raise errors.bad_request("target.kind must be Node and target.name must be set")
        pod = self._objects.get(_PODS, namespace, name)
        meta, spec = pod.obj["metadata"], pod.obj["spec"]
        wanted = body["metadata"].get("uid", meta["uid"])
        if wanted != meta["uid"]:
            raise errors.conflict(_PODS, name, f"Precondition failed: UID {wanted} is not {meta['uid']}")
        if "deletionTimestamp" in meta:
            raise errors.conflict(_PODS, name, f"pod {name} is being deleted, cannot be assigned to a host")
        if spec.get("nodeName"):
            why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
            raise errors.conflict(_PODS, name, why)
        if spec.get("schedulingGates"):
            raise errors.conflict(_PODS, name, f"pod {name} has non-empty .spec.schedulingGates")
        status = _set_condition(pod.obj, {"type": "PodScheduled", "status": "True"})
        bound = {**pod.obj, "spec": {**spec, "nodeName": target["name"]}, "status": status}
        annotations = body["metadata"].get("annotations")
        if annotations:
            bound["metadata"] = {**meta, "annotations": {**(meta.get("annotations") or {}), **annotations}}
        self._objects.update(_PODS, pod, bound, Write(write.manager, write.dry_run, "binding"))
        return {**SUCCESS, "code": 201}


class Evictor:
    """pods/eviction: deletion that asks the PodDisruptionBudgets first."""

    def __init__(self, objects: Objects, deleter: Deleter) -> None:
        self._objects = objects
        self._deleter = deleter

    def evict(self, namespace: str, name: str, body: Json, write: Write) -> Json:
        """Evict the pod. Raises ApiError 404, 409, 429 or 500."""
        if body.get("kind", "Eviction") != "Eviction":
            raise errors.bad_request(f"expected an Eviction, got {body['kind']}")
        options = DeleteOptions.of(body.get("deleteOptions") or {}, {})
        pod = self._objects.get(_PODS, namespace, name)
        if not self._ignores_budgets(pod):
            self._spend(pod, write)
        if not (write.dry_run or options.dry_run):
            reason = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            reason["message"] = "Eviction API: evicting"
            status = _set_condition(pod.obj, reason)
            marked = {**pod.obj, "status": status}
            pod = self._objects.update(_PODS, pod, marked, Write(write.manager, subresource="status"))
            self._deleter.delete(_PODS, pod, options)
        return {**SUCCESS, "code": 201}

    @staticmethod
    def _ignores_budgets(pod: Stored) -> bool:
        phase = (pod.obj.get("status") or {}).get("phase")
        return "deletionTimestamp" in pod.obj["metadata"] or phase in ("Succeeded", "Failed", "Pending")

    def _spend(self, pod: Stored, write: Write) -> None:
        labels = pod.obj["metadata"].get("labels") or {}
        budgets = [
            pdb
            for pdb in self._objects.store[_PDBS.store_key].all(pod.namespace)
            if matches_label_selector((pdb.obj.get("spec") or {}).get("selector"), labels)
        ]
        if not budgets:
            return
        if len(budgets) > 1:
            message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise errors.ApiError(500, "InternalError", message)
        pdb = budgets[0]
        spec, status = pdb.obj.get("spec") or {}, pdb.obj.get("status") or {}
        if _condition(pod.obj, "Ready") != "True":
            healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
            if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or (healthy >= desired > 0):
                return
        self._take_one(pdb, pod, status, write)

    def _take_one(self, pdb: Stored, pod: Stored, status: Json, write: Write) -> None:
        refused = "Cannot evict pod as it would violate the pod's disruption budget."
        if status.get("observedGeneration", 0) < pdb.obj["metadata"].get("generation", 1):
            why = f"The disruption budget {pdb.name} is still being processed by the server."
            raise errors.too_many(refused, [{"reason": "DisruptionBudget", "message": why}], _RETRY_S)
        disrupted = status.get("disruptedPods") or {}
        if status.get("disruptionsAllowed", 0) <= 0 or len(disrupted) > _MAX_DISRUPTED:
            needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
            why = f"The disruption budget {pdb.name} needs {needs} healthy pods and has {has} currently"
            raise errors.too_many(refused, [{"reason": "DisruptionBudget", "message": why}])
        spent = {
            **status,
            "disruptionsAllowed": status["disruptionsAllowed"] - 1,
            "disruptedPods": {**disrupted, pod.name: now()},
        }
        if not write.dry_run:
            self._objects.update(_PDBS, pdb, {**pdb.obj, "status": spent}, Write(write.manager, subresource="status"))


def request_token(objects: Objects, authenticator: Authenticator, namespace: str, name: str, body: Json) -> Json:
    """serviceaccounts/token: a bearer token for the account. Raises ApiError 404 or 422."""
    resource = of("serviceaccounts")
    account = objects.get(resource, namespace, name)
    spec = body.get("spec") or {}
    seconds = spec.get("expirationSeconds", DEFAULT_TOKEN_S)
    if not isinstance(seconds, int) or seconds < 600:
        field = errors.wrong("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        raise errors.invalid(of("serviceaccounts"), name, [field])
    audiences = spec.get("audiences") or []
    token, expiry = authenticator.issue(account.obj, audiences, seconds, spec.get("boundObjectRef"))
    ends = datetime.fromtimestamp(expiry, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": now()},
        "spec": {"audiences": audiences, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": ends},
    }


def scale_of(stored: Stored) -> Json:
    """The Scale of a workload."""
    meta, spec = stored.obj["metadata"], stored.obj.get("spec") or {}
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in names},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {
            "replicas": (stored.obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


def set_scale(objects: Objects, resource: Resource, stored: Stored, scale: Json, write: Write) -> Json:
    """Write spec.replicas of a Scale back to its workload. Raises ApiError 409 or 422."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        problem = errors.wrong("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.invalid(resource, stored.name, [problem])
    asked = (scale.get("metadata") or {}).get("resourceVersion") or stored.obj["metadata"]["resourceVersion"]
    meta = {**stored.obj["metadata"], "resourceVersion": asked}
    spec = {**stored.obj["spec"], "replicas": replicas}
    return scale_of(objects.update(resource, stored, {**stored.obj, "metadata": meta, "spec": spec}, write))
