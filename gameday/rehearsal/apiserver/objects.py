"""What a write means: create, replace and patch with the real server's rules, up to the moment of storing."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gameday.rehearsal.apiserver import defaults, errors, managers, patches, validation
from gameday.rehearsal.apiserver.codec import check_kind, renamed, shown, without_nulls
from gameday.rehearsal.apiserver.resources import Resource
from gameday.rehearsal.apiserver.store import Store, Stored

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

# The alphabet of k8s.io/apimachinery/pkg/util/rand: no vowels, no look-alikes.
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_KEPT_META = ("uid", "creationTimestamp", "name", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds")
_PUT_CREATES = frozenset({"endpoints", "events", "leases.coordination.k8s.io"})
_NEEDS_VERSION = frozenset({"leases.coordination.k8s.io", "poddisruptionbudgets.policy"})


@dataclass(frozen=True)
class Write:
    """Who writes and how. `subresource` is "" or e.g. "status"."""

    manager: str
    dry_run: bool = False
    subresource: str = ""
    force: bool = False


def now() -> str:
    """metav1.Time of this second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def _well_formed() -> Iterator[None]:
    """Turn what a wrongly typed field does to defaulting and validation into the 400 a typed decoder gives."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise errors.bad_request(f"the object cannot be decoded: a field has a wrong type ({error})") from error


class Objects:
    """Writes to the store. Everything here is synchronous: a request is atomic."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
        """The object; ApiError 404."""
        stored = self.store.get(resource.store_key, namespace, name)
        if stored is None:
            raise errors.not_found(resource, name)
        return stored

    def create(self, resource: Resource, namespace: str, obj: Json, write: Write) -> Stored:
        """Store a new object. Raises ApiError 400, 403, 404, 409 or 422."""
        check_kind(obj, resource.api_version, resource.kind)
        obj = renamed(resource, obj)
        meta = obj["metadata"]
        if meta.pop("resourceVersion", ""):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        self._place(resource, namespace, meta)
        if not meta.get("name") and meta.get("generateName"):
            tail = "".join(secrets.choice(_NAME_ALPHABET) for _ in range(5))
            meta["name"] = meta["generateName"][:58] + tail
        with _well_formed():
            validation.check(resource, obj)
        if resource.namespaced:
            self._check_namespace(resource, namespace, meta["name"])
        if self.store.get(resource.store_key, meta.get("namespace", ""), meta["name"]):
            raise errors.already_exists(resource, meta["name"])
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            meta.pop(key, None)
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = now()
        if resource.generation:
            meta["generation"] = 1
        with _well_formed():
            if resource.plural == "pods":
                self._admit_pod(resource, obj)
            defaults.on_create(resource.store_key, obj)
        managers.record_update(None, obj, self._writer(resource, write))
        return self._commit(resource, obj, write)

    def replace(self, resource: Resource, namespace: str, name: str, obj: Json, write: Write) -> tuple[Stored, bool]:
        """PUT: (the stored object, whether it was created). Raises ApiError 400, 404, 409 or 422."""
        check_kind(obj, resource.api_version, resource.kind)
        obj = renamed(resource, obj)
        meta = obj["metadata"]
        self._place(resource, namespace, meta)
        if meta.setdefault("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
        old = self.store.get(resource.store_key, namespace, name)
        if old is None:
            creatable = resource.store_key in _PUT_CREATES or "rbac" in resource.group
            if creatable and not write.subresource and not meta.get("resourceVersion"):
                return self.create(resource, namespace, obj, write), True
            raise errors.not_found(resource, name)
        if not meta.get("resourceVersion") and resource.store_key in _NEEDS_VERSION:
            hint = "must be specified for an update"
            raise errors.invalid(resource, name, [errors.wrong("metadata.resourceVersion", 0, hint)])
        return self.update(resource, old, obj, write), False

    def patch(
        self, resource: Resource, namespace: str, name: str, kind: str, patch: Any, write: Write
    ) -> tuple[Stored, bool]:
        """PATCH of the type `kind`: (the stored object, whether it was created)."""
        old = self.store.get(resource.store_key, namespace, name)
        if kind == APPLY_PATCH:
            return self._apply(resource, namespace, name, old, patch, write)
        if old is None:
            raise errors.not_found(resource, name)
        if kind == JSON_PATCH:
            change: Callable[[Json, Any], Json] = patches.json_patch
        elif not isinstance(patch, dict):
            raise errors.bad_request("error decoding patch: the patch is no JSON object")
        else:
            change = patches.merge_patch if kind == MERGE_PATCH else patches.strategic_merge
        typed = {"kind": resource.kind, "apiVersion": resource.api_version}
        patched = change({**typed, **shown(resource, old.obj)}, patch)
        if kind == JSON_PATCH:
            patched = without_nulls(patched)
        check_kind(patched, resource.api_version, resource.kind)
        patched = renamed(resource, patched)
        if patched["metadata"].get("name") != name:
            field = errors.wrong("metadata.name", str(patched["metadata"].get("name")), "field is immutable")
            raise errors.invalid(resource, name, [field])
        return self.update(resource, old, patched, write), False

    def _apply(
        self, resource: Resource, namespace: str, name: str, old: Stored | None, patch: Any, write: Write
    ) -> tuple[Stored, bool]:
        config, asked = self._apply_config(resource, namespace, name, patch, write)
        writer = self._writer(resource, write)
        if old is None:
            if write.subresource:
                raise errors.not_found(resource, name)
            merged = managers.apply({"metadata": {}}, config, writer, write.force)
            return self._create_applied(resource, namespace, merged, write), True
        if asked and asked != old.obj["metadata"]["resourceVersion"]:
            raise errors.conflict(resource, name)
        return self.update(resource, old, managers.apply(old.obj, config, writer, write.force), write, True), False

    def _apply_config(
        self, resource: Resource, namespace: str, name: str, patch: Any, write: Write
    ) -> tuple[Json, str]:
        """(what an apply patch configures of this endpoint's part, the resourceVersion it insists on or "")."""
        if not isinstance(patch, dict) or not patch.get("apiVersion") or not patch.get("kind"):
            raise errors.bad_request("invalid object type: an apply patch is an object with apiVersion and kind")
        config = without_nulls(patch)
        check_kind(config, resource.api_version, resource.kind)
        config = renamed(resource, config)
        meta = config["metadata"]
        if meta.pop("managedFields", None):
            raise errors.bad_request("metadata.managedFields must be nil")
        asked = meta.pop("resourceVersion", "")
        if meta.setdefault("name", name) != name:
            raise errors.bad_request(f"the name of the object does not match the name on the URL ({name})")
        self._place(resource, namespace, meta)
        if write.subresource == "status":
            return {key: config[key] for key in ("metadata", "status") if key in config}, asked
        if resource.status:
            config.pop("status", None)
        return config, asked

    def _create_applied(self, resource: Resource, namespace: str, merged: Json, write: Write) -> Stored:
        entries = merged["metadata"].pop("managedFields", [])
        created = self.create(resource, namespace, merged, Write(write.manager, dry_run=True))
        created.obj["metadata"]["managedFields"] = entries
        return self._commit(resource, created.obj, write)

    def update(self, resource: Resource, old: Stored, new: Json, write: Write, applied: bool = False) -> Stored:
        """Store `new` over `old` after the checks; returns `old` when nothing changed."""
        was, meta = old.obj["metadata"], dict(new["metadata"])
        self._check_identity(resource, old, meta)
        for key in _KEPT_META:
            meta.pop(key, None)
            if key in was:
                meta[key] = was[key]
        meta["resourceVersion"] = was["resourceVersion"]
        if "generation" in was:
            meta["generation"] = was["generation"]
        meta.pop("selfLink", None)
        new = self._part(resource, old.obj, {**new, "metadata": meta}, write.subresource)
        with _well_formed():
            if not write.subresource:
                defaults.on_update(resource.store_key, new)
            validation.check(resource, new, None if write.subresource == "binding" else old.obj)
        if _same(old.obj, new) and (not applied or meta.get("managedFields") == was.get("managedFields")):
            return old
        if resource.generation and _desired(old.obj) != _desired(new):
            meta["generation"] = was.get("generation", 0) + 1
        if not applied:
            managers.record_update(old.obj, new, self._writer(resource, write))
        return self._commit(resource, new, write)

    @staticmethod
    def _check_identity(resource: Resource, old: Stored, meta: Json) -> None:
        was = old.obj["metadata"]
        uid = meta.get("uid", was["uid"])
        if uid != was["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {was['uid']}"
            raise errors.conflict(resource, old.name, why)
        asked = meta.get("resourceVersion") or "0"
        if asked not in ("0", was["resourceVersion"]):
            raise errors.conflict(resource, old.name)
        if meta.get("namespace", old.namespace) != old.namespace:
            raise errors.bad_request("the namespace of an object cannot change")

    @staticmethod
    def _part(resource: Resource, old: Json, new: Json, subresource: str) -> Json:
        """Only the part of `new` that this endpoint may write."""
        if subresource == "status":
            meta = {**new["metadata"]}
            meta.pop("ownerReferences", None)
            if "ownerReferences" in old["metadata"]:
                meta["ownerReferences"] = old["metadata"]["ownerReferences"]
            return {**old, "metadata": meta, "status": new.get("status") or {}}
        if resource.status and not subresource:
            new = {key: value for key, value in new.items() if key != "status"}
            if "status" in old:
                new["status"] = old["status"]
        return new

    def _commit(self, resource: Resource, obj: Json, write: Write) -> Stored:
        if write.dry_run:
            return Stored(obj, self.store.rv)
        stored = self.store.put(resource.store_key, obj)
        self._finish_deletion(resource, stored)
        return stored

    def _finish_deletion(self, resource: Resource, stored: Stored) -> None:
        """Remove an object whose deletion waited only for the finalizers this write took off."""
        meta = stored.obj["metadata"]
        if "deletionTimestamp" not in meta or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds", 0):
            return
        if not (stored.obj.get("spec") or {}).get("finalizers"):
            self.store.delete(resource.store_key, stored.namespace, stored.name)

    @staticmethod
    def _place(resource: Resource, namespace: str, meta: Json) -> None:
        if not resource.namespaced:
            meta.pop("namespace", None)
        elif meta.setdefault("namespace", namespace) != namespace:
            raise errors.bad_request("the namespace of the provided object does not match the namespace sent on the "
                                     f"request: {meta['namespace']} is not {namespace}")  # fmt: skip

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        space = self.store.get("namespaces", "", namespace)
        if space is None:
            raise errors.ApiError(
                404, "NotFound", f'namespaces "{namespace}" not found', {"name": namespace, "kind": "namespaces"}
            )
        if "deletionTimestamp" in space.obj["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise errors.forbidden(resource, name, why)

    def _admit_pod(self, resource: Resource, pod: Json) -> None:
        """ServiceAccount and Priority admission."""
        meta, spec = pod["metadata"], pod["spec"]
        account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec["serviceAccountName"] = account
        if self.store.get("serviceaccounts", meta["namespace"], account) is None:
            why = (
                f'error looking up service account {meta["namespace"]}/{account}: serviceaccount "{account}" not found'
            )
            raise errors.forbidden(resource, meta["name"], why)
        name = spec.get("priorityClassName")
        classes = self.store["priorityclasses.scheduling.k8s.io"]
        if name:
            found = classes.get("", name)
            if found is None:
                raise errors.forbidden(resource, meta["name"], f"no PriorityClass with name {name} was found")
        else:
            found = next((item for item in classes.all() if item.obj.get("globalDefault")), None)
        if found is not None:
            spec["priorityClassName"], spec["priority"] = found.name, found.obj["value"]
            spec.setdefault("preemptionPolicy", found.obj.get("preemptionPolicy", "PreemptLowerPriority"))

    @staticmethod
    def _writer(resource: Resource, write: Write) -> managers.Writer:
        return managers.Writer(write.manager, write.subresource, resource.api_version, now())


def _same(old: Json, new: Json) -> bool:
    ignored = ("managedFields", "resourceVersion")
    before = {key: value for key, value in old["metadata"].items() if key not in ignored}
    after = {key: value for key, value in new["metadata"].items() if key not in ignored}
    return before == after and {**old, "metadata": None} == {**new, "metadata": None}


def _desired(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}
