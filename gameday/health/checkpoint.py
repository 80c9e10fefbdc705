"""What the controller must know after it starts again, in one ConfigMap: how far the log is handled, and what for.

It is kept here and not on the nodes, because a node that was returned has to
be as it was before its quarantine. Nodes and ConfigMap cannot be written
together, so the order is what makes a crash harmless at any point:

* A fault is written to the node first, its taint and its reason at once; the
  reason says which lines were acted upon. Only then it comes here. In between,
  the node itself knows what this ConfigMap does not know yet.
* When a quarantine ends, it is written here first, and the reason is taken off
  the node only after that has succeeded.
* The cursor moves only while nothing waits to be written to a node.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

import urllib3
from kubernetes.client.exceptions import ApiException

from gameday.cluster.kube_errors import reason_of
from gameday.health.api import MANAGER, MERGE_PATCH, Api
from gameday.health.model import Seen, read_seen

log = logging.getLogger(__name__)

_NAME = "gameday-health"
# All other keys are nodes' names, in which there are no underscores.
_CURSOR = "handled_until_ns"
# Half of what a ConfigMap may hold (1 MiB): etcd counts the keys once more, in managedFields. Room for 1,200 nodes
# with sixteen lines each, or 3,500 with one.
MOST_BYTES = 512 * 1024
# How far back a first start reads, and the farthest a later one does: older faults need a person's judgement.
_FIRST_LOOK_BACK_NS = 60 * 10**9
LONGEST_LOOK_BACK_NS = 3600 * 10**9
# How late one node's lines may reach the store and still be read after a start: the cursor is that of the fastest node.
# What each node is done with is known of each (Seen).
LATE_NS = 600 * 10**9
_SAVE_EVERY_S = 10.0


class Checkpoint:
    """Bounded three ways: sixteen lines a node, `MOST_BYTES` in all, and nothing of nodes that `meet` or `keep_only`
    find gone or booted anew."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._nodes: dict[str, str] = {}
        """Seen as JSON by node; the node noted longest ago first."""
        self._size = 0
        self._unsaved: set[str] = set()
        self._saved_ns = 0
        self._save_at = 0.0
        self._complained = False

    def load(self) -> int:
        """Where to begin reading the log, Unix ns. Raises ApiException and urllib3's HTTPError for what may pass."""
        now = time.time_ns()
        try:
            found = self._api.request("GET", f"{self._path}/{_NAME}").get("data") or {}
            nodes = {node: read_seen(text) for node, text in found.items() if node != _CURSOR}
            for node in sorted(nodes, key=lambda node: nodes[node].until_ns):
                self.note(node, nodes[node])
            self._unsaved = {node for node in nodes if found[node] != self._nodes.get(node)}
            self._saved_ns = int(found.get(_CURSOR, "0"))
        except ValueError:
            log.warning("configmap %s holds no readable %s; reading the last minute", _NAME, _CURSOR)
        except ApiException as error:
            if error.status not in (401, 403, 404):
                raise
            if error.status != 404:
                self._complain(error)
        if not self._saved_ns:
            return now - _FIRST_LOOK_BACK_NS
        return min(max(self._saved_ns - LATE_NS, now - LONGEST_LOOK_BACK_NS), now)

    def seen(self, node: str) -> Seen:
        return read_seen(self._nodes.get(node))

    def note(self, node: str, seen: Seen) -> None:
        """To be saved. Where all together grows too large, the nodes noted longest ago are forgotten."""
        text = seen.model_dump_json(exclude_defaults=True)
        if self._nodes.get(node) == text:
            return
        self.forget(node)
        if seen == Seen():
            return
        self._nodes[node] = text
        self._size += len(node) + len(text)
        self._unsaved.add(node)
        while self._size > MOST_BYTES - len(_CURSOR) - 20:
            self.forget(next(iter(self._nodes)))

    def meet(self, node: str, boot: str) -> None:
        """A node is seen under this boot; of an earlier boot nothing is needed once it is too old to be read again."""
        if node not in self._nodes:
            return
        seen = self.seen(node)
        if boot and seen.boot != boot and seen.until_ns < time.time_ns() - LONGEST_LOOK_BACK_NS:
            self.forget(node)

    def forget(self, node: str) -> None:
        text = self._nodes.pop(node, None)
        if text is not None:
            self._size -= len(node) + len(text)
            self._unsaved.add(node)

    def keep_only(self, nodes: Collection[str]) -> None:
        for node in [node for node in self._nodes if node not in nodes]:
            self.forget(node)

    def save(self, handled_ns: int = 0, *, at_once: bool) -> bool:
        """Whether all that was noted is in the API server; and that every line up to `handled_ns` is handled."""
        data: dict[str, str | None] = {node: self._nodes.get(node) for node in self._unsaved}
        if handled_ns > self._saved_ns:
            data[_CURSOR] = str(handled_ns)
        if not data:
            return True
        if not at_once and time.monotonic() < self._save_at:
            return False
        self._save_at = time.monotonic() + _SAVE_EVERY_S
        try:
            self._write(data)
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            self._complain(error)
            return False
        self._unsaved.clear()
        self._saved_ns = max(self._saved_ns, handled_ns)
        self._complained = False
        return True

    def _write(self, data: dict[str, str | None]) -> None:
        query = {"fieldManager": MANAGER}
        try:
            self._api.request("PATCH", f"{self._path}/{_NAME}", {"data": data}, query, MERGE_PATCH)
        except ApiException as error:
            if error.status != 404:
                raise
            cursor = {_CURSOR: data.get(_CURSOR) or str(self._saved_ns)}
            body = {"metadata": {"name": _NAME}, "data": {**self._nodes, **cursor}}
            self._api.request("POST", self._path, body, query)

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            what = "what a restart must know is not saved, and returned nodes keep their reason until it is"
            log.warning("%s/%s cannot be used: %s; %s", self._path, _NAME, reason_of(error), what)
