"""Create, replace and patch objects by the real server's rules, up to the moment of storing."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import orjson

from kubesim.apiserver import defaults, errors, fieldset, kind_validation, managers, patches, typed
from kubesim.apiserver.admission import Admission, random_suffix
from kubesim.apiserver.resources import Resource
from kubesim.apiserver.store import Store, Stored
from kubesim.clock import rfc3339_now
from kubesim.errors import DecodeError
from kubesim.unsimulated import notices

Json = dict[str, Any]

VALIDATIONS = ("", "Ignore", "Strict", "Warn")

_GENERATED_MAX = 58
_NAME_ATTEMPTS = 8
# Fields that cannot change; an update drops a client's values for them without an error.
_SERVERS_META = ("creationTimestamp", "generation", "selfLink")
_PUT_CREATES = frozenset({"events", "leases.coordination.k8s.io"})
_NEEDS_VERSION = frozenset({"leases.coordination.k8s.io", "poddisruptionbudgets.policy"})
_MISSING_NAME = "the name of the object ({} based on URL) was undeterminable: name must be provided"


@dataclass(frozen=True)
class Write:
    """A write's author and options. `subresource` is "" or e.g. "status"."""

    manager: str
    dry_run: bool = False
    subresource: str = ""
    validation: str = "Warn"
    """The treatment of unknown fields: Ignore, Warn or Strict."""
    warnings: list[str] = field(default_factory=list, compare=False)
    """Warnings for the client."""
    tracked: bool = True
    """True if the write counts in managedFields."""


class Objects:
    """Writes to the store. Everything here is synchronous, so a request is atomic."""

    def __init__(self, store: Store, runtime_classes: Collection[str] = ()) -> None:
        self.store = store
        self._admission = Admission(store, runtime_classes)

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
        """Return the object. Raises StatusError 404."""
        stored = self.store.get(resource.qualified, namespace, name)
        if stored is None:
            raise errors.not_found(resource, name)
        return stored

    def check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        """Refuse a namespace that takes no new objects, by StatusError 404 or 403."""
        self._admission.check_namespace(resource, namespace, name)

    # Create ----------------------------------------------------------------------------------------------------

    def create(self, resource: Resource, namespace: str, obj: Json, write: Write) -> Stored:
        """Store a new object, given without kind and apiVersion. Raises StatusError 400, 403, 404, 409, 422 or 500."""
        obj = _decoded(resource, obj, write)
        return self._create(resource, namespace, obj, write)

    def _create(self, resource: Resource, namespace: str, obj: Json, write: Write) -> Stored:
        meta = obj["metadata"]
        _set_namespace(resource, namespace, meta)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._generated(resource, meta)
        if resource.namespaced:
            self._admission.check_namespace(resource, namespace, meta.get("name", ""))
        version = meta.pop("resourceVersion", "0")
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            meta.pop(key, None)
        meta["uid"], meta["creationTimestamp"] = str(uuid.uuid4()), rfc3339_now()
        if resource.generation:
            meta["generation"] = 1
        defaults.fill(resource.qualified, obj)
        # What admission and the kind's strategy add has no owner.
        _record_creator(resource, obj, _writer(resource, write))
        self._admission.change(resource, obj)
        defaults.before_create(resource.qualified, obj)
        kind_validation.check(resource, obj)
        write.warnings.extend(notices(resource.qualified, obj))
        if version not in ("", "0"):
            raise errors.failed("resourceVersion should not be set on objects to be created")
        existing = self.store.get(resource.qualified, meta.get("namespace", ""), meta["name"])
        if existing is not None:
            raise errors.already_exists(
                resource, meta["name"], is_terminating="deletionTimestamp" in existing.obj["metadata"]
            )
        return self._commit(resource, obj, write)

    def _generated(self, resource: Resource, meta: Json) -> str:
        """Return a new name by the generateName; after some attempts, one that is taken, which is then refused."""
        for _ in range(_NAME_ATTEMPTS):
            name: str = meta["generateName"][:_GENERATED_MAX] + random_suffix()
            if self.store.get(resource.qualified, meta.get("namespace", ""), name) is None:
                break
        return name

    # Update ----------------------------------------------------------------------------------------------------

    def replace(self, resource: Resource, namespace: str, name: str, obj: Json, write: Write) -> tuple[Stored, bool]:
        """Replace or create an object; return it, and True if created. Raises StatusError 400, 404, 409, 422 or 500."""
        old = self.store.get(resource.qualified, namespace, name)
        obj = _decoded(resource, obj, write)
        meta = obj["metadata"]
        _check_name(meta, name)
        _set_namespace(resource, namespace, meta)
        if old is None:
            creatable = resource.qualified in _PUT_CREATES or "rbac" in resource.group
            if creatable and not write.subresource and not meta.get("resourceVersion"):
                return self._create(resource, namespace, obj, write), True
            raise errors.not_found(resource, name)
        uid = meta.get("uid", old.obj["metadata"]["uid"])
        if uid != old.obj["metadata"]["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old.obj['metadata']['uid']}"
            raise errors.conflict(resource, name, why)
        meta["uid"] = uid
        if not meta.get("resourceVersion") and resource.qualified in _NEEDS_VERSION:
            problem = errors.wrong("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid_version(resource, name, problem)
        return self.update(resource, old, obj, write), False

    def patch(self, resource: Resource, namespace: str, name: str, kind: str, patch: Any, write: Write) -> Stored:
        """Patch an object by a patch of the type `kind`; return it. Raises StatusError 400, 404, 409, 422 or 500."""
        old = self.get(resource, namespace, name)
        patched = self._patched(resource, old.obj, kind, patch, write)
        _check_name(patched["metadata"], name)
        _set_namespace(resource, namespace, patched["metadata"])
        return self.update(resource, old, patched, write)

    @staticmethod
    def _patched(resource: Resource, obj: Json, kind: str, patch: Any, write: Write) -> Json:
        """Return an object as changed by a patch. Raises StatusError 400, 422 or 500."""
        shape = typed.shape_of(resource.api_version, resource.kind)
        whole = {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
        changed = patches.apply_patch(kind, whole, patch, shape)
        given = (changed.get("kind"), changed.get("apiVersion"))
        if given not in ((resource.kind, resource.api_version), (None, None)):
            raise errors.invalid_patch(_sorted_json(changed), "a patch changes neither kind nor apiVersion")
        changed = {key: value for key, value in changed.items() if key not in ("kind", "apiVersion")}
        decoder = typed.Decoder()
        try:
            found: Json = decoder.decode(shape, changed, whole)
        except DecodeError as error:
            if kind == patches.STRATEGIC_PATCH:
                raise errors.invalid_patch(patches.go_syntax(patch), error.conversion) from None
            raise errors.invalid_patch(_sorted_json(changed), error) from None
        if write.validation == "Strict" and decoder.unknown:
            why = f"strict decoding error: {', '.join(decoder.unknown)}"
            text = patches.go_syntax(patch) if kind == patches.STRATEGIC_PATCH else _sorted_json(changed)
            raise errors.invalid_patch(text, why)
        if changed.get("metadata", {}).get("managedFields") == []:
            found["metadata"]["managedFields"] = []
        _warn_unknown(decoder, write)
        return found

    # Storing ---------------------------------------------------------------------------------------------------

    def update(self, resource: Resource, old: Stored, new: Json, write: Write) -> Stored:
        """Store `new` over `old` after the checks; return `old` if nothing changed."""
        _check_version(resource, old, new["metadata"])
        new = self._part(
            resource, old.obj, {**new, "metadata": _updated_metadata(new["metadata"], old)}, write.subresource
        )
        meta, was = new["metadata"], old.obj["metadata"]
        if not write.subresource:
            defaults.fill(resource.qualified, new)
        _record_changes(new, old.obj, _writer(resource, write) if write.tracked else None)
        if not write.subresource:
            defaults.before_update(resource.qualified, new, old.obj)
        if write.subresource != "binding":
            kind_validation.check(resource, new, old.obj)
        if not write.subresource:
            write.warnings.extend(notices(resource.qualified, new))
        if _is_unchanged(old.obj, new) and meta.get("managedFields") == was.get("managedFields"):
            return old
        if resource.generation and _desired_state(old.obj) != _desired_state(new) and write.subresource != "binding":
            meta["generation"] = was.get("generation", 0) + 1
        return self._commit(resource, new, write)

    @staticmethod
    def _part(resource: Resource, old: Json, new: Json, subresource: str) -> Json:
        """Return the old object with the part of `new` that this endpoint may write."""
        if subresource == "status":
            meta = {**new["metadata"]}
            meta.pop("ownerReferences", None)
            if "ownerReferences" in old["metadata"]:
                meta["ownerReferences"] = old["metadata"]["ownerReferences"]
            found = {**old, "metadata": meta, "status": new.get("status") or {}}
            defaults.fill_status(resource.qualified, found, old)
            return found
        if resource.status and not subresource:
            new = {key: value for key, value in new.items() if key != "status"}
            if "status" in old:
                new["status"] = old["status"]
        return new

    def _commit(self, resource: Resource, obj: Json, write: Write) -> Stored:
        if write.dry_run:
            return Stored(obj, self.store.rv)
        if _is_done(obj):
            # Clients do not see this state: the object is deleted as it was.
            meta = obj["metadata"]
            self.store.delete(resource.qualified, meta.get("namespace", ""), meta["name"])
            return Stored(obj, self.store.rv)
        return self.store.put(resource.qualified, obj)


def _is_done(obj: Json) -> bool:
    """Return True if an object's deletion waited only for the finalizers that a write took off."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds", 0):
        return False
    return not (obj.get("spec") or {}).get("finalizers")


def _decoded(resource: Resource, obj: Json, write: Write) -> Json:
    """Return an object as it is stored. Raises StatusError 400."""
    decoder = typed.Decoder()
    try:
        shape = typed.shape_of(resource.api_version, resource.kind)
        found: Json = decoder.decode(shape, obj)
    except DecodeError as error:
        raise errors.cannot_handle(resource.kind, resource.version, resource.kind, str(error)) from None
    if write.validation == "Strict" and decoder.unknown:
        why = f"strict decoding error: {', '.join(decoder.unknown)}"
        raise errors.cannot_handle(resource.kind, resource.version, resource.kind, why)
    _warn_unknown(decoder, write)
    return found


def _warn_unknown(decoder: typed.Decoder, write: Write) -> None:
    if write.validation != "Ignore":
        write.warnings.extend(decoder.unknown)


def _sorted_json(obj: Json) -> str:
    return orjson.dumps(obj, option=orjson.OPT_SORT_KEYS).decode()


def _check_name(meta: Json, name: str) -> None:
    """Check that the name in the body is that of the path. Raises StatusError 400."""
    given = meta.get("name", "")
    if not given:
        raise errors.bad_request(_MISSING_NAME.format(name))
    if given != name:
        raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def _set_namespace(resource: Resource, namespace: str, meta: Json) -> None:
    """Set the namespace of the path; the body must name no other. Raises StatusError 400."""
    if not resource.namespaced:
        meta.pop("namespace", None)
    elif (meta.get("namespace") or namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    else:
        meta["namespace"] = namespace


def _updated_metadata(meta: Json, old: Stored) -> Json:
    """Return the metadata of an update, with what clients cannot change as it was."""
    was = old.obj["metadata"]
    meta = {key: value for key, value in meta.items() if key not in _SERVERS_META}
    meta |= {key: was[key] for key in (*_SERVERS_META, "resourceVersion") if key in was}
    for key in ("namespace", "uid"):
        if key in was:
            meta[key] = meta.get(key) or was[key]
    # An update without the deletion's fields does not revive the object.
    return {key: was[key] for key in ("deletionTimestamp", "deletionGracePeriodSeconds") if key in was} | meta


def _record_changes(new: Json, old: Json, writer: managers.Writer | None) -> None:
    """Record who changed which fields; without a writer the owners stay as in `new`."""
    meta, was = new["metadata"], old["metadata"]
    if meta.get("managedFields") in ([], [{}]):
        # The client wipes the owners: from now on no field has one.
        del meta["managedFields"]
        return
    if not meta.get("managedFields") and "managedFields" in was:
        meta["managedFields"] = was["managedFields"]
    if writer is not None and not _is_unchanged(old, new):
        managers.record_update(old, new, writer)


def _check_version(resource: Resource, old: Stored, meta: Json) -> None:
    asked = meta.get("resourceVersion") or "0"
    if not asked.isdigit():
        raise errors.failed(f'strconv.ParseUint: parsing "{asked}": invalid syntax')
    if asked not in ("0", old.obj["metadata"]["resourceVersion"]):
        raise errors.conflict(resource, old.name)


def _writer(resource: Resource, write: Write) -> managers.Writer:
    root = fieldset.root_of(resource)
    return managers.Writer(write.manager, write.subresource, resource.api_version, rfc3339_now(), root)


def _record_creator(resource: Resource, obj: Json, writer: managers.Writer) -> None:
    """Record who made a new object; its status counts only if that has no endpoint of its own."""
    nothing = fieldset.empty_object(resource)
    meant = {key: value for key, value in obj.items() if key != "status" or not resource.status}
    managers.record_update(nothing, meant, writer)


def _is_unchanged(old: Json, new: Json) -> bool:
    ignored = ("managedFields", "resourceVersion")
    before = {key: value for key, value in old["metadata"].items() if key not in ignored}
    after = {key: value for key, value in new["metadata"].items() if key not in ignored}
    return before == after and {**old, "metadata": None} == {**new, "metadata": None}


def _desired_state(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}
