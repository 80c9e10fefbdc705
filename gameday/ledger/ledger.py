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
    """One run's ledger. Every entry is a key of its own, so that two writers cannot lose one."""

    def __init__(self, kubernetes: Kubernetes, header: Header) -> None:
        self._kubernetes = kubernetes
        self.header = header
        self.name = ledger_name(header.run_id)
        self._entries: dict[str, Entry] = {}
        self._unwritten: dict[str, Entry] = {}
        self._created = False

    def intend(
        self, *, id: str, act: str, node: str | None, undo: Undo, expires: datetime, with_next: bool = False
    ) -> Entry:
        """Write what is about to be done and how to undo it. Only when this returns may it be done.

        `with_next` leaves the writing to the next intent, for what only that one sets off.
        """
        entry = Entry(id=id, seq=len(self._entries), act=act, node=node, undo=undo, expires=expires)
        self._keep(entry)
        if not with_next:
            self.flush()
        return entry

    def settle(self, entry: Entry, cleanliness: Cleanliness, by: str, evidence: Iterable[str]) -> None:
        """Note that an entry's undo was verified. Raises KubernetesError.

        A clean one is written with the next intent, or never, when the ledger
        goes: whoever finds it open before undoes it again, which changes
        nothing. Anything else is written at once.
        """
        lines = tuple(line[:_EVIDENCE_CHARACTERS] for line in list(evidence)[:_EVIDENCE_LINES])
        self._keep(entry.model_copy(update={"settled": cleanliness, "by": by, "evidence": lines}))
        if cleanliness is not Cleanliness.CLEAN:
            self.flush()

    def flush(self) -> None:
        """Write what is not yet written, in one request; the first one makes the ConfigMap. Raises KubernetesError
        (409: a run of this id has a ledger already)."""
        if not self._unwritten:
            return
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
        self._created = True
        self._unwritten.clear()

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

    def all_clean(self) -> bool:
        return all(entry.settled is Cleanliness.CLEAN for entry in self._entries.values())

    def delete(self) -> None:
        """Remove the ledger; only a ledger whose every entry is clean may go."""
        if not self._created:
            return
        kubernetes = self._kubernetes
        with kubernetes.explained(f"delete ledger {self.name}"):
            kubernetes.core.delete_namespaced_config_map(self.name, kubernetes.profile.namespace)

    def _keep(self, entry: Entry) -> None:
        self._entries[entry.id] = entry
        self._unwritten[entry.id] = entry

    @classmethod
    def of_stored(cls, kubernetes: Kubernetes, stored: StoredLedger) -> Ledger:
        ledger = cls(kubernetes, stored.header)
        ledger._entries = {entry.id: entry for entry in stored.entries}
        ledger._created = True
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
