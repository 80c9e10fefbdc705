"""Admission: checks and changes of a decoded object before it is stored, besides the rules of its kind.

It has those of the real server's plug-ins that kubectl and small controllers meet: NamespaceLifecycle, ServiceAccount,
Priority, DefaultTolerationSeconds, TaintNodesByCondition, RuntimeClass.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any

from kubesim.apiserver import errors
from kubesim.apiserver.resources import Resource
from kubesim.apiserver.store import Store

Json = dict[str, Any]

# k8s.io/kubernetes plugin/pkg/admission/defaulttolerationseconds.
_EVICTION_TOLERATION_S = 300
_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
# Life of a token: an hour, and kubelets renew it early (serviceaccount.WarnOnlyBoundTokenExpirationPeriod).
_TOKEN_S = 3607
# The alphabet of k8s.io/apimachinery/pkg/util/rand: no vowels, no look-alikes.
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def random_suffix() -> str:
    """Return the five characters that end a generated name."""
    return "".join(secrets.choice(_NAME_ALPHABET) for _ in range(5))


class Admission:
    """Changes or refuses objects that are about to be created."""

    def __init__(self, store: Store, runtime_classes: Collection[str] = ()) -> None:
        self._store = store
        self._runtime_classes = runtime_classes

    def check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        """Refuse a namespace that is absent (StatusError 404) or terminating (403)."""
        space = self._store.get("namespaces", "", namespace)
        if space is None:
            details = {"name": namespace, "kind": "namespaces"}
            raise errors.StatusError(404, "NotFound", f'namespaces "{namespace}" not found', details)
        if "deletionTimestamp" in space.obj["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            error = errors.forbidden(resource, name, why)
            message = f"namespace {namespace} is being terminated"
            cause = errors.cause("NamespaceTerminating", "metadata.namespace", message)
            error.details = {**(error.details or {}), "causes": [cause]}
            raise error

    def change(self, resource: Resource, obj: Json) -> None:
        """Change a new object as the plug-ins do. Raises StatusError 403."""
        if resource.plural == "pods":
            self._account(resource, obj)
            self._priority(resource, obj)
            self._runtime_class(resource, obj)
            _tolerate_evictions(obj["spec"])
        elif resource.plural == "nodes":
            _not_ready(obj)

    def _account(self, resource: Resource, pod: Json) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        stored = self._store.get("serviceaccounts", meta["namespace"], name)
        if stored is None:
            at = f"{meta['namespace']}/{name}"
            why = f'error looking up service account {at}: serviceaccount "{name}" not found'
            raise errors.forbidden(resource, meta["name"], why)
        if not spec.get("imagePullSecrets") and stored.obj.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [*stored.obj["imagePullSecrets"]]
        if spec.get("automountServiceAccountToken", stored.obj.get("automountServiceAccountToken", True)):
            _mount_token(spec)

    def _priority(self, resource: Resource, pod: Json) -> None:
        spec, name = pod["spec"], pod["spec"].get("priorityClassName")
        classes = self._store["priorityclasses.scheduling.k8s.io"]
        if name:
            found = classes.get("", name)
            if found is None:
                raise errors.forbidden(
                    resource, pod["metadata"]["name"], f"no PriorityClass with name {name} was found"
                )
        else:
            found = next((item for item in classes.all() if item.obj.get("globalDefault")), None)
        value = found.obj.get("value", 0) if found else 0
        if spec.get("priority", value) != value:
            why = (
                f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority "
                f"admission controller computed {value} from the given PriorityClass name"
            )
            raise errors.forbidden(resource, pod["metadata"]["name"], why)
        spec["priority"] = value
        if found is not None:
            spec["priorityClassName"] = found.name
        policy = found.obj.get("preemptionPolicy") if found else None
        spec.setdefault("preemptionPolicy", policy or "PreemptLowerPriority")

    def _runtime_class(self, resource: Resource, pod: Json) -> None:
        name = pod["spec"].get("runtimeClassName")
        if name and name not in self._runtime_classes:
            why = f'pod rejected: RuntimeClass "{name}" not found'
            raise errors.forbidden(resource, pod["metadata"]["name"], why)


def _mount_token(spec: Json) -> None:
    """Add a volume with the account's token, mounted in each container that mounts nothing else at that path."""
    name = f"kube-api-access-{random_suffix()}"
    mounted = False
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        mounts = container.get("volumeMounts") or []
        if not any(mount.get("mountPath") == _TOKEN_PATH for mount in mounts):
            container["volumeMounts"] = [*mounts, {"name": name, "readOnly": True, "mountPath": _TOKEN_PATH}]
            mounted = True
    if not mounted:
        return
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_S, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
    ]
    volume = {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}
    spec["volumes"] = [*(spec.get("volumes") or []), volume]


def _tolerate_evictions(spec: Json) -> None:
    tolerations = list(spec.get("tolerations") or [])
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            seconds = {"tolerationSeconds": _EVICTION_TOLERATION_S}
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", **seconds})
    spec["tolerations"] = tolerations


def _tolerates(toleration: Json, key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


def _not_ready(node: Json) -> None:
    """Taint a new node not-ready: it must become Ready before work is placed on it."""
    taints = node["spec"].get("taints") or []
    if not any((taint.get("key"), taint.get("effect")) == (_NOT_READY, "NoSchedule") for taint in taints):
        node["spec"]["taints"] = [*taints, {"key": _NOT_READY, "effect": "NoSchedule"}]
