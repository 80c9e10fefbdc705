"""The controller's memory across restarts, in one ConfigMap: how far each node's log and each source is handled.

It is not on the nodes, because a returned node has to be as it was before its quarantine. Node and ConfigMap cannot
be written together, so the order of writes makes a crash harmless at any point:

* A fault is written to the node first, its taint and its reason together; the reason names the lines it is about.
  Only then is it written here. In between, the node itself has what this ConfigMap still lacks.
* When a quarantine ends, that is written here first. The reason is taken off the node only after it has succeeded.
* The cursors move only while nothing waits to be written to a node.
* A write names the version that was last read or written, so a process that slept while another one took the lead
  cannot overwrite newer knowledge.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Any

from gameday.cluster.json_api import CONFLICT, NOT_FOUND, JsonApi
from gameday.cluster.kube_errors import reason_of
from gameday.errors import KubernetesError
from gameday_health.model import LogProgress, read_progress
from gameday_health.signal import SignalKind

log = logging.getLogger(__name__)

_NAME = "gameday-health"
# All other keys are names of nodes, which have no underscores.
_CURSORS = {
    SignalKind.KERNEL_LOG: "handled_until_ns",
    SignalKind.METRIC: "metrics_until_ns",
    SignalKind.POD_LOG: "pod_logs_until_ns",
}
_CURSOR_BYTES = 60
# Half of what a ConfigMap may hold (1 MiB): etcd counts the keys once more, in managedFields. Room for 1,200 nodes
# with sixteen lines each, or 3,500 with one.
MOST_BYTES = 512 * 1024
# The first start reads this far back, and later starts no further: older faults need a person's judgement.
_FIRST_LOOK_BACK_NS = 60 * 10**9
LONGEST_LOOK_BACK_NS = 3600 * 10**9
# A line may reach the store this late and still be read after a start: the cursor is that of the fastest node, and
# each node's own progress shows which of its lines are handled.
LATE_NS = 600 * 10**9
_SAVE_EVERY_S = 10.0


class Checkpoint:
    """The progress of every node, and the cursor of every source that can be read from a given moment.

    It is bounded three ways: sixteen lines a node, `MOST_BYTES` in all, and nothing of nodes that `drop_outdated` or
    `keep_only` find gone or rebooted.
    """

    def __init__(self, api: JsonApi, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._version = ""
        """The ConfigMap's resourceVersion as it was last read or written; empty if it is unknown."""
        self._nodes: dict[str, str] = {}
        """LogProgress as JSON by node; the node recorded longest ago comes first."""
        self._size = 0
        self._unsaved: set[str] = set()
        self._saved_ns: dict[SignalKind, int] = {}
        self._handled_ns: dict[SignalKind, int] = {}
        self._save_at = 0.0
        self._warned = False

    def load(self) -> int:
        """Read the ConfigMap; return the Unix ns from which to read the log.

        Raises:
            KubernetesError: The server does not answer, or refuses in a way that may pass.
        """
        try:
            stored = self._api.request("GET", f"{self._path}/{_NAME}")
            self._version, found = _version_of(stored), stored.get("data") or {}
            nodes = {node: read_progress(text) for node, text in found.items() if node not in _CURSORS.values()}
            for node in sorted(nodes, key=lambda node: nodes[node].until_ns):
                self.record(node, nodes[node])
            self._unsaved = {node for node in nodes if found[node] != self._nodes.get(node)}
            self._saved_ns = {source: int(found[key]) for source, key in _CURSORS.items() if key in found}
        except ValueError:
            log.warning("configmap %s holds a cursor that is not a number; reading the last minute", _NAME)
        except KubernetesError as error:
            if error.status not in (401, 403, NOT_FOUND):
                raise
            if error.status != NOT_FOUND:
                self._warn_once(error)
        return self.since(SignalKind.KERNEL_LOG)

    def since(self, source: SignalKind) -> int:
        """Return the Unix ns from which to read a source, after `load`.

        A source without a cursor of its own starts at the kernel log's.
        """
        now = time.time_ns()
        saved = self._saved_ns.get(source) or self._saved_ns.get(SignalKind.KERNEL_LOG)
        if not saved:
            return now - _FIRST_LOOK_BACK_NS
        return min(max(saved - LATE_NS, now - LONGEST_LOOK_BACK_NS), now)

    def advance(self, source: SignalKind, handled_ns: int) -> None:
        """Move a source's cursor: everything up to this Unix time is handled."""
        self._handled_ns[source] = max(self._handled_ns.get(source, 0), handled_ns)

    def progress(self, node: str) -> LogProgress:
        """Return the recorded progress of a node."""
        return read_progress(self._nodes.get(node))

    def record(self, node: str, progress: LogProgress) -> None:
        """Record a node's progress for `save`. If all of it grows too large, drop the nodes recorded longest ago."""
        text = progress.model_dump_json(exclude_defaults=True)
        if self._nodes.get(node) == text:
            return
        self.forget(node)
        if progress == LogProgress():
            return
        self._nodes[node] = text
        self._size += len(node) + len(text)
        self._unsaved.add(node)
        while self._size > MOST_BYTES - len(_CURSORS) * _CURSOR_BYTES:
            self.forget(next(iter(self._nodes)))

    def drop_outdated(self, node: str, boot: str) -> None:
        """Drop a node's progress in the log of an earlier boot than `boot`, once that is too old to be read again."""
        if node not in self._nodes:
            return
        known = self.progress(node)
        if boot and known.boot != boot and known.until_ns < time.time_ns() - LONGEST_LOOK_BACK_NS:
            # An alert or a condition may begin before the node's return and last until long after a boot.
            self.record(node, known.without_lines())

    def forget(self, node: str) -> None:
        """Drop a node's progress."""
        text = self._nodes.pop(node, None)
        if text is not None:
            self._size -= len(node) + len(text)
            self._unsaved.add(node)

    def keep_only(self, nodes: Collection[str]) -> None:
        """Drop the progress of all other nodes."""
        for node in [node for node in self._nodes if node not in nodes]:
            self.forget(node)

    def save(self, *, with_cursors: bool, immediately: bool) -> bool:
        """Write what was recorded; return True once all of it is in the API server.

        Args:
            with_cursors: Write the cursors as well, because everything before them is handled.
            immediately: Do not wait for others to come along.
        """
        data: dict[str, str | None] = {node: self._nodes.get(node) for node in self._unsaved}
        moved = self._moved() if with_cursors else {}
        data |= {_CURSORS[source]: str(ns) for source, ns in moved.items()}
        if not data:
            return True
        if not immediately and time.monotonic() < self._save_at:
            return False
        self._save_at = time.monotonic() + _SAVE_EVERY_S
        try:
            self._write(data)
        except KubernetesError as error:
            self._warn_once(error)
            return False
        self._unsaved.clear()
        self._saved_ns |= moved
        self._warned = False
        return True

    def _moved(self) -> dict[SignalKind, int]:
        return {source: ns for source, ns in self._handled_ns.items() if ns > self._saved_ns.get(source, 0)}

    def _write(self, data: dict[str, str | None]) -> None:
        patch = {"metadata": {"resourceVersion": self._version}, "data": data} if self._version else {"data": data}
        try:
            answer = self._api.request("PATCH", f"{self._path}/{_NAME}", patch)
        except KubernetesError as error:
            if error.status == CONFLICT and self._version:
                self._version = ""  # a person edited it; if it were a new leader, `Api` would refuse to write again
                self._write(data)
                return
            if error.status != NOT_FOUND:
                raise
            cursors = {_CURSORS[source]: str(ns) for source, ns in self._saved_ns.items()}
            cursors |= {key: text for key, text in data.items() if text and key in _CURSORS.values()}
            body = {"metadata": {"name": _NAME}, "data": {**self._nodes, **cursors}}
            answer = self._api.request("POST", self._path, body)
        self._version = _version_of(answer)

    def _warn_once(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            loss = "a restart will not know how far the log is handled, and returned nodes keep their reason until then"
            log.warning("%s/%s cannot be used: %s; %s", self._path, _NAME, reason_of(error), loss)


def _version_of(configmap: dict[str, Any]) -> str:
    return str(configmap.get("metadata", {}).get("resourceVersion", ""))
