"""Deletion: grace periods, finalizers, preconditions, propagation, and the collector that follows owners."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gameday.rehearsal.apiserver import errors
from gameday.rehearsal.apiserver.defaults import GRACE_S
from gameday.rehearsal.apiserver.objects import Objects
from gameday.rehearsal.apiserver.resources import CANONICAL, Resource
from gameday.rehearsal.apiserver.store import Event, Store, Stored

Json = dict[str, Any]
Key = tuple[str, str, str]
log = logging.getLogger(__name__)

# --event-ttl of the real server.
EVENT_TTL_S = 3600
_EVENT_SWEEP_S = 60
_FOREGROUND = "foregroundDeletion"
_ORPHAN = "orphan"


@dataclass(frozen=True)
class DeleteOptions:
    """metav1.DeleteOptions; `grace_s` None means the object's own."""

    grace_s: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False

    @staticmethod
    def of(body: Json, query: dict[str, str]) -> DeleteOptions:
        """From the body and the query, the body first. Raises ApiError 400."""
        policy = body.get("propagationPolicy") or query.get("propagationPolicy", "")
        orphan = body.get("orphanDependents", query.get("orphanDependents"))
        if not policy and orphan is not None:
            policy = "Orphan" if orphan in (True, "true") else "Background"
        if policy not in ("", "Background", "Foreground", "Orphan"):
            raise errors.bad_request(f"invalid propagationPolicy {policy!r}")
        grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        try:
            grace_s = None if grace is None else int(grace)
        except (TypeError, ValueError):
            raise errors.bad_request(f"invalid gracePeriodSeconds {grace!r}") from None
        preconditions = body.get("preconditions") or {}
        return DeleteOptions(
            grace_s,
            policy,
            preconditions.get("uid", ""),
            preconditions.get("resourceVersion", ""),
            bool(body.get("dryRun") or query.get("dryRun")),
        )


class Deleter:
    """Carries deletions out on the store."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._store = objects.store

    def delete(self, resource: Resource, stored: Stored, options: DeleteOptions) -> tuple[Stored, bool]:
        """(the object as it is now, whether it is gone). Raises ApiError 409 when a precondition fails."""
        meta = stored.obj["metadata"]
        if options.uid and options.uid != meta["uid"]:
            why = f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {meta['uid']}"
            raise errors.conflict(resource, stored.name, why)
        if options.resource_version and options.resource_version != meta["resourceVersion"]:
            why = f"Precondition failed: ResourceVersion in precondition: {options.resource_version}"
            raise errors.conflict(resource, stored.name, why)
        if options.dry_run:
            return stored, True
        grace = self._grace(resource, stored, options)
        finalizers = self._finalizers(resource, meta, options)
        if not finalizers and grace == 0 and resource.plural != "namespaces":
            last = self._store.delete(resource.store_key, stored.namespace, stored.name)
            return last or stored, True
        same = "deletionTimestamp" in meta and finalizers == (meta.get("finalizers") or [])
        if same and grace >= meta.get("deletionGracePeriodSeconds", 0):
            return stored, False
        return self._mark(resource, stored, grace, finalizers), False

    def _mark(self, resource: Resource, stored: Stored, grace: int, finalizers: list[str]) -> Stored:
        obj = stored.obj
        meta = {**obj["metadata"]}
        ends = datetime.now(UTC) + timedelta(seconds=grace)
        meta["deletionTimestamp"] = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
        meta["deletionGracePeriodSeconds"] = grace
        if finalizers:
            meta["finalizers"] = finalizers
        if "generation" in meta:
            meta["generation"] += 1
        obj = {**obj, "metadata": meta}
        if resource.plural == "namespaces":
            obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}
        return self._store.put(resource.store_key, obj)

    @staticmethod
    def _grace(resource: Resource, stored: Stored, options: DeleteOptions) -> int:
        """Seconds a pod may still take; 0 for everything else and for pods no kubelet runs."""
        if resource.plural != "pods":
            return 0
        spec = stored.obj["spec"]
        if not spec.get("nodeName") or stored.obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        asked = options.grace_s if options.grace_s is not None else spec.get("terminationGracePeriodSeconds", GRACE_S)
        return max(asked, 0)

    @staticmethod
    def _finalizers(resource: Resource, meta: Json, options: DeleteOptions) -> list[str]:
        policy = options.propagation
        if not policy and resource.store_key == "jobs.batch":
            policy = "Orphan"  # batch/v1's own default, kept by Kubernetes for old clients
        kept = [name for name in meta.get("finalizers") or [] if name not in (_FOREGROUND, _ORPHAN)]
        if policy == "Foreground":
            return [*kept, _FOREGROUND]
        if policy == "Orphan":
            return [*kept, _ORPHAN]
        return kept if policy else list(meta.get("finalizers") or [])


class Collector:
    """Follows ownerReferences and empties namespaces, in the background and promptly."""

    def __init__(self, objects: Objects, deleter: Deleter) -> None:
        self._objects = objects
        self._store: Store = objects.store
        self._deleter = deleter
        self._dependents: dict[str, set[Key]] = defaultdict(set)
        self._uids: dict[str, Key] = {}
        self._due: set[Key] = set()
        self._wake = asyncio.Event()
        for key, collection in self._store.collections.items():
            for stored in collection.all():
                self._index(key, stored, None)
        self._store.observers.append(self._changed)

    def _changed(self, key: str, event: Event) -> None:
        gone = event.type == "DELETED"
        self._index(key, None if gone else event.new, event.old)
        if gone:
            uid = event.new.obj["metadata"]["uid"]
            for dependent in self._dependents.get(uid, ()):
                self._enqueue(dependent)
            self._owners_of(event.new)
            if event.new.namespace:
                self._enqueue_namespace(event.new.namespace)

    def _index(self, key: str, new: Stored | None, old: Stored | None) -> None:
        stored = new or old
        if stored is None:
            return
        identity = (key, stored.namespace, stored.name)
        uid = stored.obj["metadata"]["uid"]
        before = _owner_uids(old)
        after = _owner_uids(new)
        for owner in before - after:
            self._dependents[owner].discard(identity)
            if not self._dependents[owner]:
                del self._dependents[owner]
        for owner in after - before:
            self._dependents[owner].add(identity)
        if new is None:
            self._uids.pop(uid, None)
            return
        self._uids[uid] = identity
        if after != before or "deletionTimestamp" in new.obj["metadata"]:
            self._enqueue(identity)

    def _owners_of(self, stored: Stored) -> None:
        """A dependent is gone: owners in foreground deletion may be done."""
        for uid in _owner_uids(stored):
            if uid in self._uids:
                self._enqueue(self._uids[uid])

    def _enqueue_namespace(self, namespace: str) -> None:
        space = self._store.get("namespaces", "", namespace)
        if space is not None and "deletionTimestamp" in space.obj["metadata"]:
            self._enqueue(("namespaces", "", namespace))

    def _enqueue(self, identity: Key) -> None:
        self._due.add(identity)
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                self._step(self._due.pop())
                await asyncio.sleep(0)

    async def expire_events(self) -> None:
        """Forget events an hour after their last write, as the real server does, until cancelled."""
        while True:
            await asyncio.sleep(_EVENT_SWEEP_S)
            oldest = (datetime.now(UTC) - timedelta(seconds=EVENT_TTL_S)).strftime("%Y-%m-%dT%H:%M:%SZ")
            for stored in list(self._store["events"].all()):
                meta = stored.obj["metadata"]
                times = [entry.get("time", "") for entry in meta.get("managedFields") or []]
                if max(times, default=meta["creationTimestamp"]) < oldest:
                    self._store.delete("events", stored.namespace, stored.name)

    def _step(self, identity: Key) -> None:
        key, namespace, name = identity
        stored = self._store.get(key, namespace, name)
        if stored is None:
            return
        try:
            if key == "namespaces" and "deletionTimestamp" in stored.obj["metadata"]:
                self._empty(stored)
            else:
                self._collect(CANONICAL[key], stored)
        except errors.ApiError as error:
            log.warning("collecting %s %s/%s: %s", key, namespace, name, error)

    def _collect(self, resource: Resource, stored: Stored) -> None:
        meta = stored.obj["metadata"]
        finalizers = meta.get("finalizers") or []
        if "deletionTimestamp" in meta:
            if _ORPHAN in finalizers:
                self._orphan(stored)
                self._without_finalizer(resource, stored, _ORPHAN)
            elif _FOREGROUND in finalizers and not self._delete_dependents(stored):
                self._without_finalizer(resource, stored, _FOREGROUND)
            return
        owners = meta.get("ownerReferences") or []
        if owners and not any(self._exists(owner, stored.namespace) for owner in owners):
            options = DeleteOptions(propagation="Background", uid=meta["uid"])
            self._deleter.delete(resource, stored, options)

    def _exists(self, owner: Json, namespace: str) -> bool:
        identity = self._uids.get(owner["uid"])
        if identity is None:
            return False
        resource = CANONICAL[identity[0]]
        return (resource.kind, identity[2]) == (owner["kind"], owner["name"]) and identity[1] in ("", namespace)

    def _dependents_of(self, stored: Stored) -> list[tuple[Resource, Stored]]:
        keys = sorted(self._dependents.get(stored.obj["metadata"]["uid"], ()))
        found = [(CANONICAL[key[0]], self._store.get(*key)) for key in keys]
        return [(resource, item) for resource, item in found if item is not None]

    def _delete_dependents(self, stored: Stored) -> bool:
        """Delete what the object owns; True while a dependent still blocks it."""
        uid, blocked = stored.obj["metadata"]["uid"], False
        for resource, item in self._dependents_of(stored):
            refs = item.obj["metadata"].get("ownerReferences") or []
            if len(refs) > 1 and any(ref["uid"] != uid and self._exists(ref, item.namespace) for ref in refs):
                continue
            if "deletionTimestamp" in item.obj["metadata"]:
                gone = False
            else:
                _, gone = self._deleter.delete(resource, item, DeleteOptions(propagation="Background"))
            blocks = any(ref["uid"] == uid and ref.get("blockOwnerDeletion") for ref in refs)
            blocked = blocked or (blocks and not gone)
        return blocked

    def _orphan(self, stored: Stored) -> None:
        uid = stored.obj["metadata"]["uid"]
        for resource, item in self._dependents_of(stored):
            meta = {**item.obj["metadata"]}
            meta["ownerReferences"] = [ref for ref in meta["ownerReferences"] if ref["uid"] != uid]
            if not meta["ownerReferences"]:
                del meta["ownerReferences"]
            self._store.put(resource.store_key, {**item.obj, "metadata": meta})

    def _without_finalizer(self, resource: Resource, stored: Stored, finalizer: str) -> None:
        meta = {**stored.obj["metadata"]}
        meta["finalizers"] = [name for name in meta["finalizers"] if name != finalizer]
        if not meta["finalizers"]:
            del meta["finalizers"]
            if not meta.get("deletionGracePeriodSeconds"):
                self._store.delete(resource.store_key, stored.namespace, stored.name)
                return
        self._store.put(resource.store_key, {**stored.obj, "metadata": meta})

    def _empty(self, space: Stored) -> None:
        """Delete what a terminating namespace holds; remove it once nothing is left."""
        left = False
        for key, collection in self._store.collections.items():
            resource = CANONICAL[key]
            for stored in list(collection.all(space.name)) if resource.namespaced else ():
                meta = stored.obj["metadata"]
                gone = False
                if "deletionTimestamp" not in meta:
                    _, gone = self._deleter.delete(resource, stored, DeleteOptions(propagation="Background"))
                left = left or not gone
        if left or space.obj["metadata"].get("finalizers"):
            return
        if (space.obj.get("spec") or {}).get("finalizers", ["kubernetes"]) in ([], ["kubernetes"]):
            self._store.delete("namespaces", "", space.name)


def _owner_uids(stored: Stored | None) -> set[str]:
    if stored is None:
        return set()
    return {ref["uid"] for ref in stored.obj["metadata"].get("ownerReferences") or []}
