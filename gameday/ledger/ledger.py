"""Keep a run's entries in one ConfigMap, readable with kubectl, so that they outlive the run's process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gameday.cluster.kubernetes import Kubernetes
from gameday.history.events import Cleanliness
from gameday.ledger.entries import Entry, Header, Undo

LEDGER_LABEL = "gameday.dev/ledger"
_HEADER = "run.json"
# An entry's evidence is cut to this, so that a ledger stays far below the 1 MiB a ConfigMap may hold.
_EVIDENCE_LINES = 12
_EVIDENCE_CHARACTERS = 300


def ledger_name(run_id: str) -> str:
    return f"gameday-run-{run_id}"


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
    """One run's ledger. Every write is one request for one key, so that two writers cannot lose an entry."""

    def __init__(self, kubernetes: Kubernetes, header: Header) -> None:
        self._kubernetes = kubernetes
        self.header = header
        self.name = ledger_name(header.run_id)
        self._entries: dict[str, Entry] = {}

    def open(self) -> None:
        """Create the ConfigMap; raises KubernetesError (409: a run of this id is already there)."""
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "labels": {LEDGER_LABEL: "true", "gameday.dev/run": self.header.run_id}},
            "data": {_HEADER: self.header.model_dump_json()},
        }
        kubernetes = self._kubernetes
        with kubernetes.explained(f"create ledger {self.name}"):
            kubernetes.core.create_namespaced_config_map(kubernetes.profile.namespace, manifest)

    def intend(self, *, id: str, act: str, node: str | None, undo: Undo, expires: datetime) -> Entry:
        """Write what is about to be done and how to undo it. Only when this returns may it be done."""
        entry = Entry(id=id, seq=len(self._entries), act=act, node=node, undo=undo, expires=expires)
        self._write(entry)
        return entry

    def settle(self, entry: Entry, cleanliness: Cleanliness, by: str, evidence: Iterable[str]) -> None:
        """Write that an entry's undo was verified. Raises KubernetesError."""
        lines = tuple(line[:_EVIDENCE_CHARACTERS] for line in list(evidence)[:_EVIDENCE_LINES])
        self._write(entry.model_copy(update={"settled": cleanliness, "by": by, "evidence": lines}))

    def open_entries(self) -> list[Entry]:
        return StoredLedger(self.header, tuple(self._entries.values())).open_entries()

    def all_clean(self) -> bool:
        return all(entry.settled is Cleanliness.CLEAN for entry in self._entries.values())

    def delete(self) -> None:
        """Remove the ledger; only a ledger whose every entry is clean may go."""
        kubernetes = self._kubernetes
        with kubernetes.explained(f"delete ledger {self.name}"):
            kubernetes.core.delete_namespaced_config_map(self.name, kubernetes.profile.namespace)

    def _write(self, entry: Entry) -> None:
        kubernetes = self._kubernetes
        patch = {"data": {f"{entry.seq:04d}-{entry.id}.json": entry.model_dump_json()}}
        with kubernetes.explained(f"write {entry.id} into ledger {self.name}"):
            kubernetes.core.patch_namespaced_config_map(
                self.name, kubernetes.profile.namespace, patch, _content_type="application/merge-patch+json"
            )
        self._entries[entry.id] = entry

    @classmethod
    def of_stored(cls, kubernetes: Kubernetes, stored: StoredLedger) -> Ledger:
        ledger = cls(kubernetes, stored.header)
        ledger._entries = {entry.id: entry for entry in stored.entries}
        return ledger


def stored_ledgers(kubernetes: Kubernetes) -> list[StoredLedger]:
    """Every ledger of the cluster, unreadable ones included as far as they can be read."""
    with kubernetes.explained("list ledgers"):
        maps = kubernetes.core.list_namespaced_config_map(
            kubernetes.profile.namespace, label_selector=f"{LEDGER_LABEL}=true"
        ).items
    return [ledger for ledger in map(_stored, maps) if ledger is not None]


def _stored(config_map: Any) -> StoredLedger | None:
    data = dict(config_map.data or {})
    try:
        header = Header.model_validate_json(data.pop(_HEADER))
    except (KeyError, ValueError):
        return None
    entries, unreadable = [], []
    for key, text in sorted(data.items()):
        try:
            entries.append(Entry.model_validate_json(text))
        except ValueError:
            unreadable.append(key)
    return StoredLedger(header, tuple(entries), tuple(unreadable))
