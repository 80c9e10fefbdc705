"""Keep a run's entries in one ConfigMap, readable with kubectl, so that they outlive the run's process."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError
from gameday.ledger.entries import Entry, Header, RestoreNode, TakeOutFault, Undo
from gameday.values.results import Cleanliness

LEDGER_LABEL = "gameday.dev/ledger"
_HEADER = "run.json"
# From this HTTP status on an error does not say whether the request was carried out.
_SAYS_NOTHING = 500
# An entry's evidence is cut to this many bytes as JSON, three times what an undo has to say: a plan's 100 targets with
# eight entries each then stay below the 1 MiB a ConfigMap may hold. The history keeps all of it.
_EVIDENCE_BYTES = 800
_EVIDENCE_CHARACTERS = 300


def ledger_name(run_id: str) -> str:
    return f"gameday-run-{run_id}"


def still_in(run_id: str, entry: Entry) -> str:
    """Of a node on which an entry was found dirty, why nothing may begin there, and whose record says so."""
    return f"still has what run {run_id} left and nobody took out: {entry.act} (ConfigMap {ledger_name(run_id)})"


@dataclass(frozen=True)
class StoredLedgers:
    """Every ledger of the cluster. `unreadable` names ConfigMaps that are labelled as one and do not say whose."""

    ledgers: tuple[StoredLedger, ...]
    unreadable: tuple[str, ...]

    @property
    def dirty_nodes(self) -> dict[str, str]:
        """By node: what was found still in it and waits for a person, so that nothing may begin there."""
        return {
            entry.node: still_in(ledger.header.run_id, entry)
            for ledger in self.ledgers
            for entry in ledger.entries
            if entry.node and entry.settled is Cleanliness.DIRTY
        }

    @property
    def unreadable_parts(self) -> tuple[str, ...]:
        """The unreadable ConfigMaps and, as `<run>/<key>`, the unreadable entries of the others."""
        keys = (f"{ledger.header.run_id}/{key}" for ledger in self.ledgers for key in ledger.unreadable)
        return (*self.unreadable, *keys)


@dataclass(frozen=True)
class StoredLedger:
    """A ledger as it stands in the cluster. `unreadable` names keys that hold no entry of ours."""

    header: Header
    entries: tuple[Entry, ...]
    unreadable: tuple[str, ...] = ()

    def open_entries(self) -> list[Entry]:
        """Entries to undo, newest first. One settled as dirty is a person's business; unknown may be tried again."""
        unsettled = (None, Cleanliness.UNKNOWN)
        return sorted((e for e in self.entries if e.settled in unsettled), key=lambda e: e.seq, reverse=True)


class Ledger:
    """One run's ledger. Every entry is a key of its own, so that two writers cannot lose one."""

    def __init__(self, kubernetes: Kubernetes, header: Header) -> None:
        self._kubernetes = kubernetes
        self.header = header
        self.name = ledger_name(header.run_id)
        self._entries: dict[str, Entry] = {}
        self._unwritten: dict[str, Entry] = {}
        self._created = False

    def intend(
        self, *, id: str, act: str, node: str | None, undo: Undo, expires: datetime, defer_write: bool = False
    ) -> Entry:
        """Write what is about to be done and how to undo it. Only when this returns may it be done.

        `defer_write` leaves the writing to the next intent, for what only that one sets off. What was written ahead
        with another and is still open is not written again.
        """
        ahead = self.find_open(id, undo)
        if ahead is not None and id not in self._unwritten:
            return ahead
        entry = ahead or Entry(id=id, seq=len(self._entries), act=act, node=node, undo=undo, expires=expires)
        self._keep(entry)
        if not defer_write:
            self.flush()
        return entry

    def find_open(self, id: str, undo: Undo) -> Entry | None:
        """The open entry of this name with this undo."""
        entry = self._entries.get(id)
        return entry if entry is not None and entry.settled is None and entry.undo == undo else None

    def update_undo(self, entry: Entry, undo: Undo) -> None:
        """Write down at once what the undo of an act that is done has to know. Raises KubernetesError."""
        self._keep(entry.model_copy(update={"undo": undo}))
        self.flush()

    def settle(self, entry: Entry, cleanliness: Cleanliness, by: str, evidence: Iterable[str]) -> None:
        """Note that an entry's undo was verified. Raises KubernetesError.

        A clean one is written with the next intent, or never, when the ledger
        goes: whoever finds it open before undoes it again, which changes
        nothing. Anything else is written at once.
        """
        # What was learned since the caller took the entry is kept.
        known = self._entries.get(entry.id, entry)
        self._keep(known.model_copy(update={"settled": cleanliness, "by": by, "evidence": _cut(evidence)}))
        if cleanliness is not Cleanliness.CLEAN:
            self.flush()

    def flush(self) -> None:
        """Write what is not yet written, in one request; the first one makes the ConfigMap. Raises KubernetesError
        (409: a run of this id has a ledger already)."""
        if not self._unwritten:
            return
        try:
            self._write()
        except KubernetesError as error:
            # Without an answer that says no, it may be there, and has to be deleted in the end.
            self._created = self._created or error.status is None or error.status >= _SAYS_NOTHING
            raise
        self._created = True
        self._unwritten.clear()

    def _write(self) -> None:
        kubernetes = self._kubernetes
        data = {f"{entry.seq:04d}-{entry.id}.json": entry.model_dump_json() for entry in self._unwritten.values()}
        with kubernetes.explained(f"write {', '.join(self._unwritten)} into ledger {self.name}"):
            if self._created:
                kubernetes.core.patch_namespaced_config_map(
                    self.name,
                    kubernetes.profile.namespace,
                    {"data": data},
                    _content_type="application/merge-patch+json",
                )
            else:
                kubernetes.core.create_namespaced_config_map(kubernetes.profile.namespace, self._manifest(data))

    def _manifest(self, data: dict[str, str]) -> dict[str, Any]:
        labels = {LEDGER_LABEL: "true", "gameday.dev/run": self.header.run_id}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "labels": labels},
            "data": {_HEADER: self.header.model_dump_json(), **data},
        }

    def open_entries(self) -> list[Entry]:
        return StoredLedger(self.header, tuple(self._entries.values())).open_entries()

    def fault_on(self, node: str | None) -> Cleanliness:
        """What is known of the faults on a node: clean once each was read back as out."""
        found = [e.settled for e in self._entries.values() if isinstance(e.undo, TakeOutFault) and e.node == node]
        if Cleanliness.DIRTY in found:
            return Cleanliness.DIRTY
        return Cleanliness.CLEAN if set(found) <= {Cleanliness.CLEAN} else Cleanliness.UNKNOWN

    def has_restored(self, node: str) -> bool:
        """Return True once an entry that gives the node back was settled as clean."""
        return any(
            isinstance(entry.undo, RestoreNode) and entry.node == node and entry.settled is Cleanliness.CLEAN
            for entry in self._entries.values()
        )

    def cordons(self, node: str) -> bool:
        """Return True where an entry, open or settled, lifts a cordon of the node."""
        return any(
            isinstance(entry.undo, RestoreNode) and entry.node == node and entry.undo.unschedulable is False
            for entry in self._entries.values()
        )

    def injectors_on(self, node: str) -> list[str]:
        """The pods of the faults that were meant for a node."""
        faults = (entry.undo for entry in self._entries.values() if entry.node == node)
        return [fault.pod for fault in faults if isinstance(fault, TakeOutFault)]

    def all_clean(self) -> bool:
        return all(entry.settled is Cleanliness.CLEAN for entry in self._entries.values())

    def is_gone(self) -> bool:
        """Whether it was written, and somebody deleted it since: only one whose every entry is clean may go. Raises
        KubernetesError."""
        if not self._created:
            return False
        found = stored_ledgers(self._kubernetes)
        there = (*(ledger_name(one.header.run_id) for one in found.ledgers), *found.unreadable)
        return self.name not in there

    def delete(self) -> None:
        """Remove the ledger; only a ledger whose every entry is clean may go. One that is gone already is fine."""
        if not self._created:
            return
        kubernetes = self._kubernetes
        try:
            with kubernetes.explained(f"delete ledger {self.name}"):
                kubernetes.core.delete_namespaced_config_map(self.name, kubernetes.profile.namespace)
        except KubernetesError as error:
            if error.status != 404:
                raise

    def _keep(self, entry: Entry) -> None:
        self._entries[entry.id] = entry
        self._unwritten[entry.id] = entry

    @classmethod
    def of_stored(cls, kubernetes: Kubernetes, stored: StoredLedger) -> Ledger:
        ledger = cls(kubernetes, stored.header)
        ledger._entries = {entry.id: entry for entry in stored.entries}
        ledger._created = True
        return ledger


def _cut(evidence: Iterable[str]) -> tuple[str, ...]:
    """The first lines that fit; what a pod said may hold characters that take six bytes each."""
    kept: list[str] = []
    for line in (line[:_EVIDENCE_CHARACTERS] for line in evidence):
        if len(json.dumps([*kept, line])) > _EVIDENCE_BYTES:
            break
        kept.append(line)
    return tuple(kept)


def stored_ledgers(kubernetes: Kubernetes) -> StoredLedgers:
    """Every ledger of the cluster, unreadable ones included as far as they can be read."""
    with kubernetes.explained("list ledgers"):
        maps = kubernetes.core.list_namespaced_config_map(
            kubernetes.profile.namespace, label_selector=f"{LEDGER_LABEL}=true"
        ).items
    read = [(config_map.metadata.name, _stored(config_map)) for config_map in maps]
    ledgers = tuple(ledger for _, ledger in read if ledger is not None)
    return StoredLedgers(ledgers, tuple(name for name, ledger in read if ledger is None))


def _stored(config_map: Any) -> StoredLedger | None:
    data = dict(config_map.data or {})
    try:
        header = Header.model_validate_json(data.pop(_HEADER))
    except (KeyError, ValueError):
        return None
    if config_map.metadata.name != ledger_name(header.run_id):
        return None
    entries, unreadable = [], []
    for key, text in sorted(data.items()):
        try:
            entries.append(Entry.model_validate_json(text))
        except ValueError:
            unreadable.append(key)
    return StoredLedger(header, tuple(entries), tuple(unreadable))
