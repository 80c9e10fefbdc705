"""Subresources that do more than write their object: eviction, binding, tokens."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kubesim.apiserver import errors
from kubesim.apiserver.auth import API_AUDIENCES, DEFAULT_TOKEN_S, Authenticator
from kubesim.apiserver.deletion import DeleteOptions, Deleter, check_preconditions
from kubesim.apiserver.objects import Objects, Write
from kubesim.apiserver.resources import resource_named
from kubesim.apiserver.store import Stored
from kubesim.clock import rfc3339, rfc3339_now
from kubesim.selectors import matches_labels

Json = dict[str, Any]
SUCCESS: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_PODS = resource_named("pods")
_PDBS = resource_named("poddisruptionbudgets", "policy")
# The real server's maximum of status.disruptedPods, beyond which it refuses evictions.
_MAX_DISRUPTED = 2000
_RETRY_S = 10
_SHORTEST_TOKEN_S, _LONGEST_TOKEN_S = 600, 1 << 32


def _with_condition(obj: Json, condition: Json) -> Json:
    """Return the object's status with one condition replaced in its place."""
    status = obj.get("status") or {}
    conditions = list(status.get("conditions") or [])
    at = next((index for index, one in enumerate(conditions) if one.get("type") == condition["type"]), len(conditions))
    conditions[at:] = [{**condition, "lastTransitionTime": rfc3339_now()}, *conditions[at + 1 :]]
    return {**status, "conditions": conditions}


def _condition(obj: Json, kind: str) -> str:
    for condition in (obj.get("status") or {}).get("conditions") or []:
        if condition.get("type") == kind:
            return str(condition.get("status"))
    return ""


def _check_body_name(body: Json, kind: str, namespace: str, name: str) -> None:
    meta = body["metadata"]
    if (meta.get("namespace") or namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if meta.get("name", "") != name:
        raise errors.bad_request(f"name in URL does not match name in {kind} object")


class Binder:
    """pods/binding, which schedulers call."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def bind(self, namespace: str, name: str, body: Json, write: Write) -> Json:
        """Assign the pod to body.target. Raises StatusError 400, 404, 409 or 500."""
        _check_body_name(body, "Binding", namespace, name)
        target = body.get("target") or {}
        if target.get("kind", "") not in ("", "Node"):
            supported = 'supported values: "Node", "<empty>"'
            raise errors.failed(f'target.kind: Unsupported value: "{target["kind"]}": {supported}')
        if not target.get("name"):
            raise errors.failed("target.name: Required value")
        pod = self._objects.get(_PODS, namespace, name)
        meta, spec = pod.obj["metadata"], pod.obj["spec"]
        for field, shown in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted = body["metadata"].get(field) or meta[field]
            if wanted != meta[field]:
                why = f"{shown} in precondition: {wanted}, {shown} in object meta: {meta[field]}"
                raise errors.conflict(_PODS, name, f"Precondition failed: {why}")
        why = ""
        if "deletionTimestamp" in meta:
            why = f"pod {name} is being deleted, cannot be assigned to a host"
        elif spec.get("nodeName"):
            why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        elif spec.get("schedulingGates"):
            why = f"pod {name} has non-empty .spec.schedulingGates"
        if why:
            raise errors.kind_conflict("pods/binding", name, why)
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        status = _with_condition(pod.obj, scheduled)
        bound = {**pod.obj, "spec": {**spec, "nodeName": target["name"]}, "status": status}
        annotations = body["metadata"].get("annotations")
        if annotations:
            bound["metadata"] = {**meta, "annotations": {**(meta.get("annotations") or {}), **annotations}}
        self._objects.update(_PODS, pod, bound, Write(write.manager, write.dry_run, "binding", tracked=False))
        return {**SUCCESS, "code": 201}


class Evictor:
    """pods/eviction: deletion that asks the PodDisruptionBudgets first."""

    def __init__(self, objects: Objects, deleter: Deleter) -> None:
        self._objects = objects
        self._deleter = deleter

    def evict(self, namespace: str, name: str, body: Json, write: Write) -> Json:
        """Evict the pod. Raises StatusError 400, 404, 409, 422, 429 or 500."""
        _check_body_name(body, "Eviction", namespace, name)
        options = DeleteOptions.of(body.get("deleteOptions") or {})
        if write.dry_run:
            options = replace(options, dry_run=True)
        self._objects.check_namespace(_PODS, namespace, name)
        pod = self._objects.get(_PODS, namespace, name)
        check_preconditions(_PODS, pod, options)
        if not self._ignores_budgets(pod):
            self._spend(pod, options.dry_run, write)
        if not options.dry_run:
            reason = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            status = _with_condition(pod.obj, {**reason, "message": "Eviction API: evicting", "lastProbeTime": None})
            marked = {**pod.obj, "status": status}
            if "deletionTimestamp" not in pod.obj["metadata"]:
                silent = Write(write.manager, subresource="status", tracked=False)
                pod = self._objects.update(_PODS, pod, marked, silent)
            self._deleter.delete(_PODS, pod, replace(options, uid=None, resource_version=None))
        return {**SUCCESS, "code": 201}

    @staticmethod
    def _ignores_budgets(pod: Stored) -> bool:
        phase = (pod.obj.get("status") or {}).get("phase")
        return "deletionTimestamp" in pod.obj["metadata"] or phase in ("Succeeded", "Failed", "Pending")

    def _spend(self, pod: Stored, dry_run: bool, write: Write) -> None:
        labels = pod.obj["metadata"].get("labels") or {}
        budgets = [
            pdb
            for pdb in self._objects.store[_PDBS.qualified].all(pod.namespace)
            if matches_labels((pdb.obj.get("spec") or {}).get("selector"), labels)
        ]
        if not budgets:
            return
        if len(budgets) > 1:
            message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise errors.failed(message)
        pdb = budgets[0]
        spec, status = pdb.obj.get("spec") or {}, pdb.obj.get("status") or {}
        if _condition(pod.obj, "Ready") != "True":
            healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
            if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or (healthy >= desired > 0):
                return
        self._take_one(pdb, pod, dry_run, write)

    def _take_one(self, pdb: Stored, pod: Stored, dry_run: bool, write: Write) -> None:
        status = pdb.obj.get("status") or {}
        refused = "Cannot evict pod as it would violate the pod's disruption budget."
        if status.get("observedGeneration", 0) < pdb.obj["metadata"].get("generation", 1):
            why = f"The disruption budget {pdb.name} is still being processed by the server."
            raise errors.too_many(refused, [{"reason": "DisruptionBudget", "message": why}], _RETRY_S)
        disrupted = status.get("disruptedPods") or {}
        allowed = status.get("disruptionsAllowed", 0)
        if allowed <= 0 or len(disrupted) > _MAX_DISRUPTED:
            needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
            why = f"The disruption budget {pdb.name} needs {needs} healthy pods and has {has} currently"
            if has > needs:
                why = f"The disruption budget {pdb.name} does not allow evicting pods currently"
            raise errors.too_many(refused, [{"reason": "DisruptionBudget", "message": why}])
        spent = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": {**disrupted, pod.name: rfc3339_now()}}
        if allowed == 1:
            # The disruption controller's condition, which the last allowed eviction updates.
            generation = {"observedGeneration": status.get("observedGeneration", 0)}
            none = {"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": ""}
            spent["conditions"] = _with_condition({"status": spent}, {**none, **generation})["conditions"]
        if not dry_run:
            silent = Write(write.manager, subresource="status", tracked=False)
            self._objects.update(_PDBS, pdb, {**pdb.obj, "status": spent}, silent)


def request_token(objects: Objects, authenticator: Authenticator, namespace: str, name: str, body: Json) -> Json:
    """Return a bearer token for the account (serviceaccounts/token). Raises StatusError 400, 404, 409 or 422."""
    account = objects.get(resource_named("serviceaccounts"), namespace, name)
    spec = body.get("spec") or {}
    seconds = spec.get("expirationSeconds")
    if seconds is None:
        seconds = DEFAULT_TOKEN_S
    if not isinstance(seconds, int) or not _SHORTEST_TOKEN_S <= seconds <= _LONGEST_TOKEN_S:
        long = isinstance(seconds, int) and seconds > _LONGEST_TOKEN_S
        bound = "larger than 2^32 seconds" if long else "less than 10 minutes"
        field = errors.wrong("spec.expirationSeconds", seconds, f"may not specify a duration {bound}")
        raise errors.invalid_request("authentication.k8s.io", "TokenRequest", [field])
    audiences, ref = spec.get("audiences") or [*API_AUDIENCES], spec.get("boundObjectRef")
    if ref:
        ref = {**ref, "uid": _bound_uid(objects, namespace, ref)}
    token, expiry = authenticator.issue(account.obj, audiences, seconds, ref)
    ends = rfc3339(datetime.fromtimestamp(expiry, UTC))
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": account.obj["metadata"]["uid"],
            "creationTimestamp": rfc3339_now(),
        },
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": ref},
        "status": {"token": token, "expirationTimestamp": ends},
    }


def _bound_uid(objects: Objects, namespace: str, ref: Json) -> str:
    """Return the uid of the object that the token is bound to and ends with. Raises StatusError 400, 404 or 409."""
    kind, version = ref.get("kind", ""), ref.get("apiVersion", "")
    plural = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}.get(kind)
    if plural is None or version != "v1":
        shown = version if "/" in version else f"/{version}"
        raise errors.bad_request(f"cannot bind token to object of type {shown}, Kind={kind}")
    found = objects.get(resource_named(plural), namespace if plural != "nodes" else "", ref.get("name", ""))
    uid: str = found.obj["metadata"]["uid"]
    if ref.get("uid", uid) != uid:
        why = f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record"
        raise errors.kind_conflict(kind, found.name, f"{why}. The object might have been deleted and then recreated")
    return uid
