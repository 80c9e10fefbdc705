"""Deletion: grace periods, finalizers, preconditions, propagation, and the collector that follows owners."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from multidict import MultiMapping

from kubesim.apiserver import errors
from kubesim.apiserver.bodies import dry_run_causes
from kubesim.apiserver.defaults import GRACE_S
from kubesim.apiserver.objects import Objects
from kubesim.apiserver.resources import BY_NAME, Resource
from kubesim.apiserver.store import Event, Store, Stored
from kubesim.clock import now_utc, rfc3339, rfc3339_now

Json = dict[str, Any]
Key = tuple[str, str, str]
log = logging.getLogger(__name__)

# --event-ttl of the real server.
EVENT_TTL_S = 3600
_EVENT_SWEEP_S = 60
_POLICIES = ("Foreground", "Background", "Orphan")
# By default these leave their dependents behind, for the sake of old clients.
_ORPHANING = frozenset({"jobs.batch"})
_FOREGROUND = "foregroundDeletion"
_ORPHAN = "orphan"


@dataclass(frozen=True)
class DeleteOptions:
    """metav1.DeleteOptions; None means not given."""

    grace_s: int | None = None
    propagation: str | None = None
    orphans: bool | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False

    @staticmethod
    def of(body: Json) -> DeleteOptions:
        """Read decoded options. Raises StatusError 422."""
        policy, orphans = body.get("propagationPolicy"), body.get("orphanDependents")
        causes = dry_run_causes(body.get("dryRun") or [])
        field = "propagationPolicy"
        if policy is not None and policy not in _POLICIES:
            causes.append(errors.unsupported(field, policy, (*_POLICIES, "nil")))
        elif policy is not None and orphans is not None:
            causes.append(errors.wrong(field, policy, "orphanDependents and deletionPropagation cannot be both set"))
        if causes:
            raise errors.invalid_request("meta.k8s.io", "DeleteOptions", causes)
        wanted = body.get("preconditions") or {}
        uid, version = wanted.get("uid"), wanted.get("resourceVersion")
        return DeleteOptions(body.get("gracePeriodSeconds"), policy, orphans, uid, version, bool(body.get("dryRun")))

    @staticmethod
    def from_query(query: MultiMapping[str]) -> DeleteOptions:
        """Read the options in a query. Raises StatusError 400 or 422."""
        body: Json = {key: query[key] for key in ("propagationPolicy",) if key in query}
        if "gracePeriodSeconds" in query:
            try:
                body["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
            except ValueError:
                why = f'strconv.ParseInt: parsing "{query["gracePeriodSeconds"]}": invalid syntax'
                raise errors.bad_request(why) from None
        if "orphanDependents" in query:
            body["orphanDependents"] = query["orphanDependents"] not in ("false", "0")
        return DeleteOptions.of({**body, "dryRun": query.getall("dryRun", [])})


class Deleter:
    """Carries deletions out on the store."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._store = objects.store

    def delete(self, resource: Resource, stored: Stored, options: DeleteOptions) -> tuple[Stored, bool]:
        """Return the object as it is now, and True if it is gone. Raises StatusError 409 if a precondition fails."""
        meta = stored.obj["metadata"]
        check_preconditions(resource, stored, options)
        grace = self._grace(resource, stored, options)
        finalizers = self._finalizers(resource, meta, options)
        if resource.plural == "namespaces":
            return self._delete_namespace(resource, stored, finalizers, options)
        graceful = resource.plural == "pods"
        is_terminating = "deletionTimestamp" in meta
        if not finalizers and not grace and not (graceful and meta.get("deletionGracePeriodSeconds") != 0):
            return self._remove(resource, stored, options)
        same = is_terminating and finalizers == (meta.get("finalizers") or [])
        if not (same and (grace is None or grace >= meta.get("deletionGracePeriodSeconds", 0))):
            kept = meta.get("deletionGracePeriodSeconds") if is_terminating else None
            marked = _marked_as_deleted(
                stored.obj, kept if grace is None or ((kept or 0) < grace and is_terminating) else grace, finalizers
            )
            stored = Stored(marked, stored.rv) if options.dry_run else self._store.put(resource.qualified, marked)
        if finalizers or stored.obj["metadata"]["deletionGracePeriodSeconds"]:
            return stored, False
        return self._remove(resource, stored, options) if graceful else (stored, False)

    def _remove(self, resource: Resource, stored: Stored, options: DeleteOptions) -> tuple[Stored, bool]:
        if options.dry_run:
            return stored, True
        last = self._store.delete(resource.qualified, stored.namespace, stored.name)
        return last or stored, True

    def _delete_namespace(
        self, resource: Resource, stored: Stored, finalizers: list[str], options: DeleteOptions
    ) -> tuple[Stored, bool]:
        if "deletionTimestamp" in stored.obj["metadata"]:
            return stored, False
        meta = {**stored.obj["metadata"], "deletionTimestamp": rfc3339_now()}
        if finalizers:
            meta["finalizers"] = finalizers
        status = {**stored.obj.get("status", {}), "phase": "Terminating"}
        marked = {**stored.obj, "metadata": meta, "status": status}
        return (Stored(marked, stored.rv) if options.dry_run else self._store.put(resource.qualified, marked)), False

    @staticmethod
    def _grace(resource: Resource, stored: Stored, options: DeleteOptions) -> int | None:
        """Return the seconds a pod may still take; 0 for other kinds and pods that no kubelet runs. None: as before."""
        if resource.plural != "pods":
            return 0
        spec, meta = stored.obj["spec"], stored.obj["metadata"]
        asked = options.grace_s
        if asked is not None and asked < 0:
            asked = 1
        if "deletionTimestamp" in meta:
            return asked
        if not spec.get("nodeName") or stored.obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        own = spec.get("terminationGracePeriodSeconds", GRACE_S)
        return asked if asked is not None else max(own, 1) if own < 0 else own

    @staticmethod
    def _finalizers(resource: Resource, meta: Json, options: DeleteOptions) -> list[str]:
        before = list(meta.get("finalizers") or [])
        policy = options.propagation or {True: "Orphan", False: "Background", None: ""}[options.orphans]
        if not policy and resource.qualified in _ORPHANING and not {_FOREGROUND, _ORPHAN} & {*before}:
            policy = "Orphan"
        if not policy:
            return before
        kept = [name for name in before if name not in (_FOREGROUND, _ORPHAN)]
        return [*kept, *{"Foreground": [_FOREGROUND], "Orphan": [_ORPHAN]}.get(policy, [])]


def check_preconditions(resource: Resource, stored: Stored, options: DeleteOptions) -> None:
    """Refuse to delete an object other than the one that was meant, by StatusError 409."""
    meta = stored.obj["metadata"]
    uid, version = options.uid, options.resource_version
    if uid is not None and uid != meta["uid"]:
        if resource.plural == "namespaces":
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
            raise errors.conflict(resource, stored.name, why)
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']})"
        raise errors.kind_conflict(
            resource.kind, stored.name, f"{why}. The object might have been deleted and then recreated"
        )
    if version is not None and version != meta["resourceVersion"]:
        record = f"the ResourceVersion in record ({meta['resourceVersion']})"
        why = f"the ResourceVersion in the precondition ({version}) does not match {record}"
        raise errors.kind_conflict(resource.kind, stored.name, f"{why}. The object might have been modified")


def _marked_as_deleted(obj: Json, grace: int | None, finalizers: list[str]) -> Json:
    """Return the object marked as being deleted."""
    meta = {**obj["metadata"]}
    if "generation" in meta and "deletionTimestamp" not in meta:
        meta["generation"] += 1
    meta["deletionTimestamp"] = rfc3339(now_utc() + timedelta(seconds=grace or 0))
    meta["deletionGracePeriodSeconds"] = grace or 0
    meta.pop("finalizers", None)
    if finalizers:
        meta["finalizers"] = finalizers
    return {**obj, "metadata": meta}


class Collector:
    """Follows ownerReferences and empties namespaces, in the background."""

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
        is_gone = event.type == "DELETED"
        self._index(key, None if is_gone else event.new, event.old)
        if is_gone:
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
        """Queue the owners of a dependent that is gone: those in foreground deletion may be done."""
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
            while self.work_once():
                await asyncio.sleep(0)

    def work_once(self) -> bool:
        """Handle one object that is due; return False if none is."""
        if not self._due:
            return False
        self._step(self._due.pop())
        return True

    async def expire_events(self) -> None:
        """Forget events an hour after their last write, as the real server does, until cancelled."""
        while True:
            await asyncio.sleep(_EVENT_SWEEP_S)
            oldest = rfc3339(now_utc() - timedelta(seconds=EVENT_TTL_S))
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
                self._collect(BY_NAME[key], stored)
        except errors.StatusError as error:
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
        resource = BY_NAME[identity[0]]
        return (resource.kind, identity[2]) == (owner["kind"], owner["name"]) and identity[1] in ("", namespace)

    def _dependents_of(self, stored: Stored) -> list[tuple[Resource, Stored]]:
        keys = sorted(self._dependents.get(stored.obj["metadata"]["uid"], ()))
        found = [(BY_NAME[key[0]], self._store.get(*key)) for key in keys]
        return [(resource, item) for resource, item in found if item is not None]

    def _delete_dependents(self, stored: Stored) -> bool:
        """Delete what the object owns; return True while a dependent still blocks it."""
        uid, blocked = stored.obj["metadata"]["uid"], False
        for resource, item in self._dependents_of(stored):
            refs = item.obj["metadata"].get("ownerReferences") or []
            if len(refs) > 1 and any(ref["uid"] != uid and self._exists(ref, item.namespace) for ref in refs):
                continue
            if "deletionTimestamp" in item.obj["metadata"]:
                is_gone = False
            else:
                _, is_gone = self._deleter.delete(resource, item, DeleteOptions(propagation="Background"))
            blocks = any(ref["uid"] == uid and ref.get("blockOwnerDeletion") for ref in refs)
            blocked = blocked or (blocks and not is_gone)
        return blocked

    def _orphan(self, stored: Stored) -> None:
        uid = stored.obj["metadata"]["uid"]
        for resource, item in self._dependents_of(stored):
            meta = {**item.obj["metadata"]}
            meta["ownerReferences"] = [ref for ref in meta["ownerReferences"] if ref["uid"] != uid]
            if not meta["ownerReferences"]:
                del meta["ownerReferences"]
            self._store.put(resource.qualified, {**item.obj, "metadata": meta})

    def _without_finalizer(self, resource: Resource, stored: Stored, finalizer: str) -> None:
        meta = {**stored.obj["metadata"]}
        meta["finalizers"] = [name for name in meta["finalizers"] if name != finalizer]
        if not meta["finalizers"]:
            del meta["finalizers"]
            if not meta.get("deletionGracePeriodSeconds"):
                self._store.delete(resource.qualified, stored.namespace, stored.name)
                return
        self._store.put(resource.qualified, {**stored.obj, "metadata": meta})

    def _empty(self, space: Stored) -> None:
        """Delete what a terminating namespace holds, and the namespace once nothing remains."""
        is_empty = True
        for key, collection in self._store.collections.items():
            resource = BY_NAME[key]
            for stored in list(collection.all(space.name)) if resource.namespaced else ():
                if "deletionTimestamp" not in stored.obj["metadata"]:
                    self._deleter.delete(resource, stored, DeleteOptions(propagation="Background"))
                is_empty = is_empty and self._store.get(key, stored.namespace, stored.name) is None
        if not is_empty:
            return
        if not space.obj["metadata"].get("finalizers"):
            self._store.delete("namespaces", "", space.name)
        elif space.obj["spec"]:
            # From now on it waits only for finalizers of its own.
            self._store.put("namespaces", {**space.obj, "metadata": {**space.obj["metadata"]}, "spec": {}})


def _owner_uids(stored: Stored | None) -> set[str]:
    if stored is None:
        return set()
    return {ref["uid"] for ref in stored.obj["metadata"].get("ownerReferences") or []}
