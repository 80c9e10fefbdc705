"""The controller: it passes lines, signals and node changes, one at a time, to the worker, which owns all state."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gameday.cluster.custom_resources import list_call
from gameday.cluster.json_api import JsonApi
from gameday.cluster.kube_errors import reason_of
from gameday.cluster.list_watch import DELETED
from gameday.cluster.loki import Followed
from gameday.cluster.watch import Follower
from gameday.errors import AdapterError, KubernetesError
from gameday_health.detect import Detection, Detector, NodeLine
from gameday_health.inbox import Inbox
from gameday_health.metrics import Metrics
from gameday_health.model import NodeView
from gameday_health.quarantine import Failure, Result
from gameday_health.signal import Signal, SignalKind
from gameday_health.sources.base import Source
from gameday_health.sources.build import Servers, build_sources
from gameday_health.worker import RETRY_S, Options, Worker

log = logging.getLogger(__name__)

_IDLE_S = 5.0


@dataclass(frozen=True)
class _NodeDeleted:
    name: str


@dataclass(frozen=True)
class _AllNodesKnown:
    pass


@dataclass(frozen=True)
class _SourceRead:
    source: SignalKind
    until_ns: int


@dataclass(frozen=True)
class _Stop:
    because: AdapterError | None = None


_Own = NodeView | _NodeDeleted | _AllNodesKnown | _SourceRead | Result | Failure | _Stop


class Controller:
    """The node-health controller of one cluster."""

    def __init__(
        self, api: JsonApi, servers: Servers, options: Options, metrics: Metrics, on_ready: Callable[[], None]
    ) -> None:
        """Prepare to run.

        Args:
            api: The API server.
            servers: The servers that signals come from; `require_servers` accepts them for the policy.
            options: The settings.
            metrics: The metrics to keep.
            on_ready: Called once the kernel log is followed.
        """
        self._api = api
        self._servers = servers
        self._options = options
        self._metrics = metrics
        self._on_ready: Callable[[], None] | None = on_ready
        self._inbox = Inbox[_Own](options.policy, lambda source, count: metrics.dropped.labels(source).inc(count))
        self._worker = Worker(api, options, metrics, self._inbox.put_own)
        self._stopping = threading.Event()
        self._sources: list[Source] = []
        self._troubles: dict[SignalKind, str] = {}

    def stop(self) -> None:
        """End `run`, from any thread or signal handler."""
        self._stopping.set()
        # In a thread of its own, because a signal handler may have interrupted the thread that holds the inbox.
        threading.Thread(target=self._inbox.put_own, args=(_Stop(),), daemon=True).start()

    def run(self) -> None:
        """Follow nodes and log until `stop`.

        Raises:
            AdapterError: The log store cannot parse the selector.
            OSError: The webhook's port cannot be bound.
        """
        conditions = {rule.condition.type for rule in self._options.policy.rules if rule.condition}
        list_nodes = list_call(self._api.client, "v1", "nodes")
        watch = Follower(list_nodes, self._node_changed, partial(NodeView.of, conditions=conditions))
        watch.__enter__()  # its thread is a daemon: the process does not wait for it
        while not watch.wait_synced(0.2):
            if self._stopping.wait(0.2):
                return
        since = self._load_checkpoint()
        self._inbox.put_own(_AllNodesKnown())
        detector = Detector(
            self._servers.logs,
            self._options.log_selector,
            self._options.node_label,
            since,
            self._log_connected,
            self._metrics.unreadable_entries.inc,
            self._options.policy.other_lines,
        )
        threading.Thread(target=self._follow, args=(detector,), name="follow", daemon=True).start()
        self._sources = build_sources(
            self._options.policy,
            self._servers,
            self._api,
            self._worker.since,
            self._deliver,
            self._source_read,
            lambda trouble: self._metrics.webhook_troubles.labels(trouble).inc(),
        )
        try:
            for source in self._sources:
                source.start()
            self._work()
        finally:
            for source in self._sources:
                source.stop()
            detector.stop()
            self._worker.close()

    def _load_checkpoint(self) -> int:
        while not self._stopping.is_set():
            try:
                return self._worker.load()
            except KubernetesError as error:
                log.warning("checkpoint not read, trying again: %s", reason_of(error))
                self._stopping.wait(random.uniform(*RETRY_S) / 4)  # noqa: S311 - jitter
        return time.time_ns()

    def _node_changed(self, kind: str, node: NodeView) -> None:
        self._inbox.put_own(_NodeDeleted(node.name) if kind == DELETED else node)

    def _deliver(self, item: NodeLine | Signal) -> bool:
        """Put into the inbox. Wait while it is full, unless the controller stops."""
        while not self._stopping.is_set():
            if self._inbox.put(item, timeout_s=1.0):
                return True
        return False

    def _source_read(self, source: SignalKind, until_ns: int) -> None:
        self._inbox.put_own(_SourceRead(source, until_ns))

    def _follow(self, detector: Detector) -> None:
        try:
            for line in detector.lines():
                self._deliver(line)
        except AdapterError as error:
            self._inbox.put_own(_Stop(error))

    def _log_connected(self, how: Followed | None) -> None:
        self._metrics.show_followed(how)
        if how and self._on_ready:
            self._on_ready()
            self._on_ready = None

    def _work(self) -> None:
        while True:
            item = self._inbox.get(min(_IDLE_S, self._worker.seconds_until_due()))
            if item is None:
                self._show_troubles()
            elif isinstance(item, _Stop):
                if item.because:
                    raise item.because
                return
            else:
                self._handle(item)
            self._worker.write_due()

    def _handle(self, item: _Own | Detection | Signal) -> None:
        match item:
            case Signal():
                self._worker.handle_signal(item)
            case _SourceRead(source=source, until_ns=until_ns):
                self._worker.source_read(source, until_ns)
            case Detection():
                self._worker.handle_line(item)
            case NodeView():
                self._worker.handle_node(item)
            case _NodeDeleted(name=name):
                self._worker.handle_deleted_node(name)
            case Result() | Failure():
                self._worker.handle_written(item)
            case _AllNodesKnown():
                self._worker.all_nodes_known()

    def _show_troubles(self) -> None:
        for kind in {source.kind for source in self._sources}:
            trouble = "; ".join(filter(None, (source.trouble() for source in self._sources if source.kind is kind)))
            self._metrics.source_up.labels(kind).set(not trouble)
            if trouble and not self._troubles.get(kind):
                log.warning("%s signals may be missing: %s", kind, trouble)
            self._troubles[kind] = trouble
