"""The repairer: open an episode for every quarantined node, and have each open one worked off by one thread.

It has no state of its own but threads. Everything that it needs to know is in the records and on the nodes, so
another one can take over at any moment.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gameday.cluster.back_off import pause_s
from gameday.cluster.json_api import CONFLICT
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.lease import Lease
from gameday.cluster.watch import Follower
from gameday.errors import AdapterError, KubernetesError, LeaseLostError
from gameday_health.episodes import transitions
from gameday_health.episodes.api import RepairApi
from gameday_health.episodes.hold_out import HoldOutPool
from gameday_health.episodes.marks import clear, show
from gameday_health.episodes.metrics import RepairMetrics
from gameday_health.episodes.model import Episode, State
from gameday_health.episodes.node import NodeSeen
from gameday_health.episodes.store import RECORD_LABEL, EpisodeStore, Stored, stored
from gameday_health.episodes.work import Settings
from gameday_health.leading import LEADING_REPAIRER, holder_name

log = logging.getLogger(__name__)

WorkOff = Callable[[str, str], None]
"""Works off the open episode of a node. Takes the names of node and episode, and may raise anything."""

_LOOK_S = 1.0
_BETWEEN_LOOKS_S = 0.1
_MOST_AT_A_LOOK = 32
"""Episodes that one look opens at most, and as many that it withholds: these writes take less than a second, in which
no repair can begin in a place that becomes free. In a storm the next look follows at once.
"""
_RETRY_S = (1.0, 30.0)
_KNOWN_WITHIN_S = 60.0
"""Seconds to read every node at the start (docs/scale.md has the time for 50,000). Our own choice."""
# Records of nodes that are gone are kept this long, for people who ask what became of them.
_KEEP_RECORDS = timedelta(days=7)


@dataclass
class _Worker:
    """The thread that works off a node's episode, and how often it broke off."""

    episode: str = ""
    thread: threading.Thread | None = None
    failures: int = 0
    retry_at: float = 0.0

    @property
    def is_running(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


class Repairer:
    """The repairer of one cluster."""

    def __init__(self, settings: Settings, kubernetes: Kubernetes, work_off: WorkOff, metrics: RepairMetrics) -> None:
        self._settings = settings
        self._api = RepairApi(kubernetes)
        self._store = EpisodeStore(self._api)
        self._hold_outs = HoldOutPool(self._api)
        self._work_off = work_off
        self._metrics = metrics
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._workers: dict[str, _Worker] = {}
        self._open: dict[str, str] = {}
        """Ids of the episodes that were open at the last look, by node."""
        core = kubernetes.core
        self._nodes = Follower(core.list_node, self._changed, settings.seen)
        self._records = Follower(
            core.list_namespaced_config_map,
            self._changed,
            stored,
            namespace=self._api.namespace,
            label_selector=f"{RECORD_LABEL}=true",
        )
        self._leader = Lease(self._api, LEADING_REPAIRER, holder_name(), settings.claim)

    def stop(self) -> None:
        """End `run`, from any thread or signal handler. The work in progress is left to the next repairer."""
        self._stopping.set()
        self._wake.set()

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Repair until `stop`; `on_ready` is called once nodes and records are known.

        Raises:
            AdapterError: The API server refuses what this needs, or does not answer at the start.
        """
        with self._nodes, self._records:
            self._nodes.require_synced(_KNOWN_WITHIN_S)
            self._records.require_synced()
            on_ready()
            leads = False
            while not self._stopping.is_set():
                leads = self._lead(leads)
                self._metrics.leads.set(leads)
                if leads:
                    self._look()
                else:
                    self._metrics.show_nothing()  # another process now reports the true state
                self._wake.wait(_LOOK_S)
                # Thousands of nodes report many times a second, and each look goes through all of them.
                self._stopping.wait(_BETWEEN_LOOKS_S)
                self._wake.clear()
            self._leader.release()

    def _lead(self, leads: bool) -> bool:
        """Return True if this process is the leading repairer."""
        if leads:
            return self._leader.is_held
        try:
            leads = self._leader.try_take()
        except KubernetesError as error:
            log.warning("%s", error)
            return False
        if leads:
            self._leader.keep_renewing()
        return leads

    def _changed(self, _kind: str, _item: Any) -> None:
        self._wake.set()

    def _look(self) -> None:
        nodes: dict[str, NodeSeen] = {seen.name: seen for seen in self._nodes.objects()}
        records: dict[str, Stored] = {found.episode.node: found for found in self._records.objects() if found}
        for action in (self._open_episodes, self._begin_work, self._swap_spares, self._tidy):
            try:
                action(nodes, records)
            except KubernetesError as error:
                # A lost race or an outage: the next look sees the true state.
                if error.status != CONFLICT:
                    log.warning("%s", error)
        self._metrics.show(
            found.episode
            for found in records.values()
            if found.episode.state is not State.HANDED_OVER or _is_ours(nodes.get(found.episode.node))
        )

    def _open_episodes(self, nodes: dict[str, NodeSeen], records: dict[str, Stored]) -> None:
        for seen in [seen for seen in nodes.values() if _is_new(seen, records.get(seen.name))][:_MOST_AT_A_LOOK]:
            last = records.get(seen.name)
            episode = transitions.open_episode(seen, last.episode if last else None, _now())
            records[seen.name] = self._store.write(episode, last.version if last else None, evidence="")

    def _begin_work(self, nodes: dict[str, NodeSeen], records: dict[str, Stored]) -> None:
        gpu_nodes = sum(seen.is_gpu_node for seen in nodes.values())
        allowed = self._settings.policy.breaker.allowed(gpu_nodes)
        self._metrics.allowed.set(allowed)
        waiting = sorted(
            (found for found in records.values() if found.episode.ended is None),
            key=lambda found: (not found.episode.state.is_repair, found.episode.opened),
        )
        # After the end of its episode a worker takes seconds to close its flow run and watches, and repairs nothing.
        ended = {found.episode.id for found in records.values() if found.episode.ended is not None}
        busy = {node for node, worker in self._workers.items() if worker.is_running and worker.episode not in ended}
        busy |= {found.episode.node for found in waiting if found.episode.state.is_repair}
        too_many: list[tuple[Stored, NodeSeen]] = []
        for found in waiting:
            episode, seen = found.episode, nodes.get(found.episode.node)
            needs_no_place = episode.node in busy or seen is None or not seen.ours or seen.uid != episode.uid
            if needs_no_place or len(busy) < allowed:
                if not needs_no_place:
                    busy.add(episode.node)
                self._start(episode)
            elif episode.state is not State.WITHHELD and seen is not None:
                too_many.append((found, seen))
        for found, seen in too_many[:_MOST_AT_A_LOOK]:
            self._withhold(found, seen, f"{len(busy)} nodes are under repair, and {allowed} may be")

    def _withhold(self, found: Stored, seen: NodeSeen, why: str) -> None:
        held = self._store.write(transitions.withheld(found.episode, why, _now()), found.version)
        show(self._api, held.episode, seen)
        self._metrics.withheld.inc()
        message = f"{why}: this one waits (episode {held.episode.id})"
        self._api.event(seen.name, seen.uid, "NodeRepairWithheld", message, warning=True)

    def _start(self, episode: Episode) -> None:
        worker = self._workers.setdefault(episode.node, _Worker())
        if worker.is_running or time.monotonic() < worker.retry_at:
            return
        worker.episode = episode.id
        worker.thread = threading.Thread(
            target=self._work, args=(worker, episode), name=f"repair {episode.node}", daemon=True
        )
        worker.thread.start()

    def _work(self, worker: _Worker, episode: Episode) -> None:
        try:
            self._work_off(episode.node, episode.id)
        except LeaseLostError as error:
            log.info("%s", error)
        except Exception as error:  # any: Prefect's, the API server's; the episode is still open, so it begins again
            self._metrics.failures.inc()
            worker.failures += 1
            log.warning("the repair of %s broke off, and goes on soon: %s", episode.node, _described(error))
        else:
            worker.failures = 0
        worker.retry_at = time.monotonic() + pause_s(max(1, worker.failures), *_RETRY_S)
        self._wake.set()

    def _swap_spares(self, nodes: dict[str, NodeSeen], _records: dict[str, Stored]) -> None:
        self._hold_outs.keep(nodes.values())
        pool = [seen for seen in nodes.values() if seen.hold_out]
        released = sum(seen.released_for is not None for seen in pool)
        self._metrics.hold_out.labels("released").set(released)
        self._metrics.hold_out.labels("spare").set(len(pool) - released)

    def _tidy(self, nodes: dict[str, NodeSeen], records: dict[str, Stored]) -> None:
        """Mend marks that a crash or a person left behind, and drop records of nodes that are long gone."""
        for node, found in records.items():
            episode, seen = found.episode, nodes.get(node)
            if episode.ended is None:
                self._open[node] = episode.id
                continue
            if self._open.pop(node, "") == episode.id:
                self._metrics.count_end(episode)
            if seen is None:
                self._workers.pop(node, None)
                if _now() - episode.ended > _KEEP_RECORDS:
                    self._store.delete(found)
            elif not seen.ours:
                clear(self._api, seen)
            elif seen.uid == episode.uid:
                show(self._api, episode, seen)
        for seen in nodes.values():
            if seen.name not in records and seen.state is not None and not seen.ours:
                clear(self._api, seen)


def _is_new(seen: NodeSeen, last: Stored | None) -> bool:
    """Return True for a node that needs an episode and has none open."""
    # If the node was replaced under its name, its open episode ends first.
    is_open = last is not None and last.episode.ended is None
    return not is_open and transitions.needs_episode(seen, last.episode if last else None)


def _is_ours(seen: NodeSeen | None) -> bool:
    """Return True while our taint keeps the node out of service; a person takes it off once the node is well."""
    return seen is not None and seen.ours


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, AdapterError) else f"{type(error).__name__}: {error}"


def _now() -> datetime:
    return datetime.now(UTC)
