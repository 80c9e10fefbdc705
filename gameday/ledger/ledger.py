"""Keep a run's entries in one ConfigMap, readable with kubectl, so that they outlive the run's process."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from kubernetes.client.exceptions import ApiException
from pydantic import ValidationError

from gameday.cluster.creation import create
from gameday.cluster.kube_errors import is_outcome_unknown
from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError
from gameday.ledger.entries import Entry, Header, RestoreNode, TakeOutFault, Undo
from gameday.text import printable
from gameday.values.results import Cleanliness

LEDGER_LABEL = "gameday.dev/ledger"
_HEADER = "run.json"
_NOT_FOUND_STATUS = 404
# An entry's evidence is cut to this many bytes as JSON, three times what an undo writes. A plan's 100 targets with nine
# entries each then stay below the 1 MiB that a ConfigMap may hold. The history keeps all of it.
_EVIDENCE_BYTES = 800
LEDGER_BYTES = 1024 * 1024
"""Limit of a ledger's data, in bytes: TotalDataSize of Kubernetes' validation of a ConfigMap."""
ENTRY_BYTES = 400 + _EVIDENCE_BYTES
"""The most bytes of an entry besides its undo: its key, its other fields and its evidence."""
_EVIDENCE_CHARACTERS = 300


def ledger_name(run_id: str) -> str:
    """Return the name of a run's ConfigMap."""
    return f"gameday-run-{run_id}"


def describe_dirty_entry(run_id: str, entry: Entry) -> str:
    """Return why no run may use the node of a dirty entry, and which ConfigMap records it."""
    return f"still has what run {run_id} left and nobody took out: {entry.act} (ConfigMap {ledger_name(run_id)})"


@dataclass(frozen=True)
class Unreadable:
    """A ledger or an entry from which no undo can be made. It is kept for a person, and holds up no other."""

    config_map: str
    key: str
    """The entry's key; empty for the whole ConfigMap."""
    why: str
    text: str = ""
    """The entry as it is stored."""

    def __str__(self) -> str:
        what = f"ConfigMap {self.config_map}" + (f", entry {printable(self.key)}" if self.key else "")
        return f"{what}: {printable(self.why)}"

    def names(self, node: str | None) -> bool:
        """Return True if the entry is about this node, as far as that can be seen."""
        return f'"{node}"' in self.text


@dataclass(frozen=True)
class StoredLedgers:
    """Every ledger of the cluster."""

    ledgers: tuple[StoredLedger, ...]
    unreadable: tuple[Unreadable, ...]
    """ConfigMaps that have the ledger label but do not name a run."""

    @property
    def dirty_nodes(self) -> dict[str, str]:
        """The change known to be left on each node. It waits for a person, and no run may use the node."""
        return {
            entry.node: describe_dirty_entry(ledger.header.run_id, entry)
            for ledger in self.ledgers
            for entry in ledger.entries
            if entry.node and entry.settled is Cleanliness.DIRTY
        }

    def has(self, name: str) -> bool:
        """Return True if a ConfigMap of this name exists, readable or not."""
        names = {one.config_map for one in self.unreadable}
        return name in names or any(ledger_name(ledger.header.run_id) == name for ledger in self.ledgers)

    @property
    def unreadable_parts(self) -> tuple[Unreadable, ...]:
        """The unreadable ConfigMaps, and the unreadable entries of the others."""
        return (*self.unreadable, *(part for ledger in self.ledgers for part in ledger.unreadable))


@dataclass(frozen=True)
class StoredLedger:
    """A ledger as the cluster stores it."""

    header: Header
    entries: tuple[Entry, ...]
    unreadable: tuple[Unreadable, ...] = ()
    """Keys of the ConfigMap that do not hold one of our entries."""
    created: datetime | None = None
    """The second in which the ConfigMap was created, by the API server's clock; None if it is not stored yet."""

    def open_entries(self) -> list[Entry]:
        """Return the entries to undo, newest first.

        An entry settled as unknown is tried again; one settled as dirty waits for a person.
        """
        unsettled = (None, Cleanliness.UNKNOWN)
        return sorted((e for e in self.entries if e.settled in unsettled), key=lambda e: e.seq, reverse=True)


class Ledger:
    """The ledger of one run. Every entry has its own key, so that two writers cannot lose one."""

    def __init__(self, kubernetes: Kubernetes, header: Header) -> None:
        self._kubernetes = kubernetes
        self.header = header
        self.name = ledger_name(header.run_id)
        self._entries: dict[str, Entry] = {}
        self._unwritten: dict[str, Entry] = {}
        self._forgotten: set[str] = set()
        self._next_seq = 0
        self._created = False
        self._unreadable: tuple[Unreadable, ...] = ()
        self.created: datetime | None = None
        """As in the StoredLedger that this ledger is made from; None for a living run's ledger."""

    def intend(
        self, *, id: str, act: str, node: str | None, undo: Undo, expires: datetime, defer_write: bool = False
    ) -> Entry:
        """Write the intended act and its undo; the act is allowed only once this returns.

        If an open entry of the same id and undo is already written, it is returned.

        Args:
            id: The entry's name, unique in the run.
            act: The intended act, in words.
            node: The node it is done on; None if it is on no node.
            undo: How to undo it.
            expires: When the change should be over, and the reaper may undo it.
            defer_write: Write it together with the next intent, which causes this one.

        Raises:
            KubernetesError: The ledger cannot be written.
        """
        ahead = self.find_open(id, undo)
        if ahead is not None and id not in self._unwritten:
            return ahead
        entry = ahead or Entry(id=id, seq=self._next_seq, act=act, node=node, undo=undo, expires=expires)
        self._next_seq = max(self._next_seq, entry.seq + 1)
        self._keep(entry)
        if not defer_write:
            self.flush()
        return entry

    def find_open(self, id: str, undo: Undo) -> Entry | None:
        """Return the open entry with this id and undo; None if there is none."""
        entry = self._entries.get(id)
        return entry if entry is not None and entry.settled is None and entry.undo == undo else None

    def update_undo(self, entry: Entry, undo: Undo) -> None:
        """Write immediately what the undo of a finished act needs to know.

        Raises:
            KubernetesError: The ledger cannot be written.
        """
        self._keep(entry.model_copy(update={"undo": undo}))
        self.flush()

    def settle(self, entry: Entry, cleanliness: Cleanliness, by: str, evidence: Iterable[str]) -> None:
        """Note that an entry's undo was verified.

        A clean entry is written with the next intent, or never if the ledger is deleted first, because undoing it again
        changes nothing. Any other entry is written immediately.

        Raises:
            KubernetesError: The ledger cannot be written.
        """
        # Keep an undo that was updated after the caller took the entry.
        newest = self._entries.get(entry.id, entry)
        self._keep(newest.model_copy(update={"settled": cleanliness, "by": by, "evidence": _shortened(evidence)}))
        if cleanliness is not Cleanliness.CLEAN:
            self.flush()

    def forget(self, entry: Entry) -> None:
        """Remove an entry that was verified as clean; the cluster's copy goes with the next intent.

        This is for a run of thousands of short acts that nothing refers to later. Until then a reaper finds the entry
        open, and undoing it again changes nothing.
        """
        del self._entries[entry.id]
        self._unwritten.pop(entry.id, None)
        self._forgotten.add(_key(entry))

    def flush(self) -> None:
        """Write all pending changes in one request; the first one creates the ConfigMap.

        Raises:
            KubernetesError: The ledger cannot be written; status 409: a run of this id has a ledger already.
        """
        if not self._unwritten:
            return
        try:
            self._write()
        except KubernetesError as error:
            # Only a clear refusal proves that the ConfigMap does not exist; otherwise it has to be deleted in the end.
            self._created = self._created or is_outcome_unknown(error)
            raise
        self._created = True
        self._unwritten.clear()
        self._forgotten.clear()

    def _write(self) -> None:
        kubernetes = self._kubernetes
        data = {_key(entry): entry.model_dump_json() for entry in self._unwritten.values()}
        with kubernetes.explained(f"write {', '.join(self._unwritten)} into ledger {self.name}"):
            if self._created:
                kubernetes.core.patch_namespaced_config_map(
                    self.name,
                    kubernetes.profile.namespace,
                    {"data": data | dict.fromkeys(self._forgotten)},  # a key without a value is removed
                    _content_type="application/merge-patch+json",
                )
            else:
                namespace, manifest = kubernetes.profile.namespace, self._manifest(data)
                try:
                    create(kubernetes.clock, lambda: kubernetes.core.create_namespaced_config_map(namespace, manifest))
                except ApiException as error:
                    # If a proxy sent a request twice, the answer is a conflict.
                    if error.status != HTTPStatus.CONFLICT or not self._is_stored(manifest["data"]):
                        raise

    def _is_stored(self, data: dict[str, str]) -> bool:
        """Return True if the cluster's ledger of this name is identical to ours."""
        kubernetes = self._kubernetes
        found = kubernetes.core.list_namespaced_config_map(
            kubernetes.profile.namespace, field_selector=f"metadata.name={self.name}"
        ).items
        return any((stored.data or {}) == data for stored in found)

    def _manifest(self, data: dict[str, str]) -> dict[str, Any]:
        labels = {LEDGER_LABEL: "true", "gameday.dev/run": self.header.run_id}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "labels": labels},
            "data": {_HEADER: self.header.model_dump_json(), **data},
        }

    def open_entries(self) -> list[Entry]:
        """Return the entries to undo, newest first."""
        return StoredLedger(self.header, tuple(self._entries.values())).open_entries()

    def fault_on(self, node: str | None) -> Cleanliness:
        """Return how clean a node is of its faults: CLEAN once each was read back as out.

        An entry that cannot be read may be a fault's.
        """
        if any(one.names(node) for one in self._unreadable):
            return Cleanliness.UNKNOWN
        found = [e.settled for e in self._entries.values() if isinstance(e.undo, TakeOutFault) and e.node == node]
        if Cleanliness.DIRTY in found:
            return Cleanliness.DIRTY
        return Cleanliness.CLEAN if set(found) <= {Cleanliness.CLEAN} else Cleanliness.UNKNOWN

    def restorations_of(self, node: str) -> list[Entry]:
        """Return the entries that gave the node back and were settled as clean."""
        return [
            entry
            for entry in self._entries.values()
            if isinstance(entry.undo, RestoreNode) and entry.node == node and entry.settled is Cleanliness.CLEAN
        ]

    def cordons(self, node: str) -> bool:
        """Return True if an entry, open or settled, lifts a cordon of the node."""
        return any(
            isinstance(entry.undo, RestoreNode) and entry.node == node and entry.undo.unschedulable is False
            for entry in self._entries.values()
        )

    def injectors_on(self, node: str) -> list[str]:
        """Return the names of the injector pods that were intended for a node."""
        faults = (entry.undo for entry in self._entries.values() if entry.node == node)
        return [fault.pod for fault in faults if isinstance(fault, TakeOutFault)]

    def all_clean(self) -> bool:
        """Return True once every entry is settled as clean."""
        return all(entry.settled is Cleanliness.CLEAN for entry in self._entries.values())

    def is_gone(self) -> bool:
        """Return True if the ledger was written and has been deleted since, which proves every entry clean.

        Raises:
            KubernetesError: The ledgers cannot be listed.
        """
        return self._created and not stored_ledgers(self._kubernetes).has(self.name)

    def delete(self) -> None:
        """Delete the ledger, if it still exists; every entry must be clean.

        Raises:
            KubernetesError: The ledger cannot be deleted.
        """
        if not self._created:
            return
        kubernetes = self._kubernetes
        try:
            with kubernetes.explained(f"delete ledger {self.name}"):
                kubernetes.core.delete_namespaced_config_map(self.name, kubernetes.profile.namespace)
        except KubernetesError as error:
            if error.status != _NOT_FOUND_STATUS:
                raise

    def _keep(self, entry: Entry) -> None:
        self._entries[entry.id] = entry
        self._unwritten[entry.id] = entry

    @classmethod
    def from_stored(cls, kubernetes: Kubernetes, stored: StoredLedger) -> Ledger:
        """Return the ledger of a dead run, to settle its open entries; a dead run adds no more."""
        ledger = cls(kubernetes, stored.header)
        ledger._entries = {entry.id: entry for entry in stored.entries}
        ledger._created = True
        ledger._unreadable, ledger.created = stored.unreadable, stored.created
        return ledger


def _key(entry: Entry) -> str:
    return f"{entry.seq:04d}-{entry.id}.json"


def _shortened(evidence: Iterable[str]) -> tuple[str, ...]:
    """Return the first lines that fit; a pod's output may hold characters that take six bytes each as JSON."""
    kept: list[str] = []
    for line in (line[:_EVIDENCE_CHARACTERS] for line in evidence):
        if len(json.dumps([*kept, line])) > _EVIDENCE_BYTES:
            break
        kept.append(line)
    return tuple(kept)


def stored_ledgers(kubernetes: Kubernetes) -> StoredLedgers:
    """Return every ledger of the cluster, including the parts that cannot be read.

    Raises:
        KubernetesError: The ConfigMaps cannot be listed.
    """
    with kubernetes.explained("list ledgers"):
        maps = kubernetes.core.list_namespaced_config_map(
            kubernetes.profile.namespace, label_selector=f"{LEDGER_LABEL}=true"
        ).items
    read = [_stored(config_map) for config_map in maps]
    return StoredLedgers(
        tuple(one for one in read if isinstance(one, StoredLedger)),
        tuple(one for one in read if isinstance(one, Unreadable)),
    )


def _stored(config_map: Any) -> StoredLedger | Unreadable:
    name, data = config_map.metadata.name, dict(config_map.data or {})
    try:
        header = Header.model_validate_json(data.pop(_HEADER, ""))
    except ValidationError as error:
        return Unreadable(name, _HEADER, _first_problem(error))
    if name != ledger_name(header.run_id):
        return Unreadable(name, _HEADER, f"it is of run {header.run_id}, which the ConfigMap's name is not")
    entries, unreadable = list[Entry](), list[Unreadable]()
    for key, text in sorted(data.items()):
        try:
            entry = Entry.model_validate_json(text)
        except ValidationError as error:
            unreadable.append(Unreadable(name, key, _first_problem(error), text))
            continue
        if why := _why_not_ours(key, entry, header, entries):
            unreadable.append(Unreadable(name, key, why, text))
        else:
            entries.append(entry)
    return StoredLedger(header, tuple(entries), tuple(unreadable), config_map.metadata.creation_timestamp)


def _why_not_ours(key: str, entry: Entry, header: Header, before: Iterable[Entry]) -> str:
    """Return why no run can have written this entry under this key, after the entries before it; empty if one can."""
    if foreign := entry.foreign_objects(header.run_id):
        return f"run {header.run_id} made no {', '.join(foreign)}"
    if key != _key(entry):  # settling it would write another key
        return f"an entry of this id and place is under {_key(entry)}"
    return "another entry has its id" if any(entry.id == other.id for other in before) else ""


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
