"""What is known and wanted of every node, and its writing: taints and reasons, Events, metrics, the checkpoint.

What it wants of a node is kept in memory until the API server has taken it
(level-triggered): an outage delays a quarantine and loses none.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import urllib3
from kubernetes.client.exceptions import ApiException

from gameday.health import nodes
from gameday.health.api import Api, reason_of
from gameday.health.checkpoint import Checkpoint
from gameday.health.detect import Detection
from gameday.health.events import NodeEvents
from gameday.health.metrics import UNKNOWN_NODE, Metrics
from gameday.health.model import Fault, NodeState, NodeView, Seen, Taint
from gameday.health.quarantine import Quarantine, Written
from gameday.xid.decide import Decision, Policy, Response, decide
from gameday.xid.lines import KernelEvent, Kind

log = logging.getLogger(__name__)

RETRY_S = (0.25, 10.0)
"""The pause after a first failure, and the longest; doubled in between."""

_HELD = 1000
# The brake: half of the cluster's nodes within five minutes, as NVSentinel's breaker (docs/sources.md, NVSentinel).
# So many at once are a wrong log more often than broken GPUs. Four are always allowed (our choice), as half of a few is
# soon reached.
_BRAKE_WINDOW = timedelta(minutes=5)
_BRAKE_SHARE = 0.5
_BRAKE_LEAST = 4
# How long what a watch says may be older than our own last write; later, a lower resourceVersion means the
# API server was restored from a backup, and the watch is right.
_STALE_S = 5.0


@dataclass(frozen=True)
class Options:
    policy: Policy
    taint: Taint
    log_selector: str
    node_label: str
    namespace: str
    """Where the checkpoint's ConfigMap lives."""


class Worker:
    """For one thread: nothing here is locked."""

    def __init__(self, api: Api, options: Options, metrics: Metrics) -> None:
        self._server = api.server
        self._options = options
        self._metrics = metrics
        self._states: dict[str, NodeState] = {}
        self._unwritten: set[str] = set()
        self._held: deque[Detection] = deque(maxlen=_HELD)
        self._events = NodeEvents(api)
        self._quarantine = Quarantine(api, options.taint, options.policy)
        self._checkpoint = Checkpoint(api, options.namespace)
        self._started_ns = time.time_ns()
        self._handled_ns = 0
        self._all_known = False
        self._beating = False

    def load(self) -> int:
        """Where to begin reading the log, Unix ns; to be called first. Raises as Checkpoint.load does."""
        return self._checkpoint.load()

    def all_nodes_known(self) -> None:
        """Every node there is has been given to `node`: what is remembered of others is of no use."""
        self._all_known = True
        self._checkpoint.keep_only(self._states.keys())

    def due_in(self) -> float:
        """Seconds until `write` has something to do; infinite where nothing waits."""
        now = time.monotonic()
        waits = [self._states[name].retry_at - now for name in self._unwritten]
        waits += [due for due in [self._events.due_in()] if due is not None]
        return max(0.0, min(waits, default=math.inf))

    def write(self) -> None:
        """Whatever is due."""
        for name in list(self._unwritten):
            self._write(name)
        self._events.flush()
        self.save(at_once=False)

    def save(self, *, at_once: bool) -> None:
        """The checkpoint; its cursor does not pass a line whose quarantine is not written yet."""
        self._checkpoint.save(0 if self._unwritten else self._handled_ns, at_once=at_once)

    def node(self, view: NodeView) -> None:
        now = datetime.now(UTC)
        self._checkpoint.meet(view.name, view.boot_id)
        state = self._states.get(view.name)
        if state is None:
            noted = self._checkpoint.seen(view.name)
            state = self._states[view.name] = nodes.first_seen(view, noted, self._options.taint.key, now)
            state.past_unknown = not self._all_known and state.seen == Seen()
            self._refresh(view.name, state)
            if self._beating and view.has_gpus:
                self._metrics.last_line.labels(view.name).set(time.time())
        else:
            if _is_stale(view, state):
                return
            ended = nodes.seen_again(state, view, self._options.taint.key, now)
            self._refresh(view.name, state)
            self._tell_ended(view.name, state, ended)
        for detection in [detection for detection in self._held if detection.node == view.name]:
            self._held.remove(detection)
            self._handle(detection)

    def node_gone(self, name: str) -> None:
        self._states.pop(name, None)
        self._unwritten.discard(name)
        self._checkpoint.forget(name)
        self._metrics.forget(name)
        self._count_quarantined()

    def line(self, detection: Detection) -> None:
        ns = detection.line.ns
        if ns >= self._started_ns:
            self._metrics.log_lag.set(max(0.0, time.time() - ns / 1e9))
        self._handled_ns = max(self._handled_ns, min(ns, time.time_ns()))
        state = self._states.get(detection.node)
        if state is None:
            self._metrics.ignored_lines.labels(UNKNOWN_NODE).inc()
        else:
            self._hear(detection, state)
        if detection.event is not None:
            self._handle(detection)

    def _hear(self, detection: Detection, state: NodeState) -> None:
        """Of shippers that do not beat nobody can say when they should have sent a line."""
        if detection.beat_s is not None:
            nodes.beat(state, detection.beat_s)
            if not self._beating:
                self._beating = True
                for name, other in self._states.items():
                    if other.view and other.view.has_gpus:
                        self._metrics.last_line.labels(name).set(time.time())
        if self._beating:
            self._metrics.last_line.labels(detection.node).set(detection.line.ns / 1e9)

    def _handle(self, detection: Detection) -> None:
        line, event = detection.line, detection.event
        assert event
        state = self._states.get(detection.node)
        # A node that the watch does not show yet may have joined while the API server was away; so may a boot.
        if state is None or nodes.may_be_of_next_boot(state, line, event):
            self._held.append(detection)
            return
        if why := nodes.why_ignored(state, line, event):
            self._metrics.ignored_lines.labels(why).inc()
            return
        self._metrics.count(detection.node, event)
        self._obey(detection, event, state)
        if not state.unwritten:
            # Else it would be done with before the node says what it led to; `_write` notes it.
            self._checkpoint.note(detection.node, state.seen)

    def _obey(self, detection: Detection, event: KernelEvent, state: NodeState) -> None:
        if event.kind is Kind.GPU_RESET:
            if event.success:
                ended = nodes.gpu_was_reset(state, event.pci, detection.line.at, datetime.now(UTC))
                self._refresh(detection.node, state)
                self._tell_ended(detection.node, state, ended)
            return
        self._act(detection, event, state, decide(event, self._options.policy))

    def _act(self, detection: Detection, event: KernelEvent, state: NodeState, decision: Decision) -> None:
        match decision.response:
            case Response.NOTHING:
                return
            case Response.QUARANTINE:
                act = self._quarantine_it(detection, event, state, decision)
            case Response.WORKLOAD:
                act = "the workload's own error, node kept"
            case Response.EVENT:
                act = "recorded only"
        where = f" on {event.pci}" if event.pci else ""
        self._tell(
            detection.node,
            state,
            event_reason(event),
            f"{decision.reason}{where}: {act} (policy {self._options.policy}). {event.text}",
            detection.line.at,
            warning=decision.response is not Response.WORKLOAD,
        )

    def _quarantine_it(self, detection: Detection, event: KernelEvent, state: NodeState, decision: Decision) -> str:
        """What was done, in words."""
        now = datetime.now(UTC)
        nodes.remember(state, detection.line, event)
        if nodes.is_history(state, event):
            return "from before anything was known of this node, so it is recorded only"
        if not state.faults and self._is_braked(now):
            self._metrics.withheld.inc()
            return "NOT quarantined, as too many nodes were within five minutes: taint it by hand if this is true"
        nodes.accept(state, detection.line, event, decision, now)
        self._refresh(detection.node, state)
        return f"node quarantined, remedy: {decision.remedy}"

    def _is_braked(self, now: datetime) -> bool:
        newly = [
            state.quarantined_at
            for state in self._states.values()
            if state.faults and state.quarantined_at and state.quarantined_at > now - _BRAKE_WINDOW
        ]
        return len(newly) >= max(_BRAKE_LEAST, _BRAKE_SHARE * len(self._states))

    def _write(self, name: str) -> None:
        state = self._states[name]
        if state.retry_at > time.monotonic():
            return
        if not state.faults:
            # The reason on the node may be the only other copy of this, so it stays until this is saved.
            self._checkpoint.note(name, state.seen)
            if not self._checkpoint.save(at_once=True):
                self._try_later(state, "checkpoint")
                return
        try:
            result = self._quarantine.write(name, state, datetime.now(UTC))
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            if not state.failures:
                log.warning("node %s not written at %s, trying again: %s", name, self._server, reason_of(error))
            self._try_later(state, "node")
            return
        state.failures, state.retry_at, state.unwritten = 0, 0.0, False
        self._unwritten.discard(name)
        if result.written is Written.GONE or result.view is None:
            self.node_gone(name)
            return
        now = datetime.now(UTC)
        if result.written is Written.TAINTED:
            for fault in state.fresh:
                self._metrics.decision_seconds.observe(max(0.0, (now - fault.at).total_seconds()))
        if result.foreign:
            there = ", ".join(str(taint) for taint in result.foreign)
            message = f"{there} is there already and not ours: left alone, {self._options.taint} not added"
            self._tell(name, state, "TaintConflict", message, now, warning=True)
        state.fresh = []
        self._checkpoint.note(name, state.seen)
        state.written_version, state.written_at = result.view.resource_version, time.monotonic()
        nodes.seen_again(state, result.view, self._options.taint.key, now)
        self._refresh(name, state)
        self.save(at_once=not self._unwritten)

    def _try_later(self, state: NodeState, what: str) -> None:
        self._metrics.write_failures.labels(what).inc()
        pause = min(RETRY_S[0] * 2**state.failures, RETRY_S[1])
        state.retry_at = time.monotonic() + pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        state.failures += 1

    def _refresh(self, name: str, state: NodeState) -> None:
        """Make the metrics and the list of things to write agree with the state."""
        if state.unwritten:
            self._unwritten.add(name)
        self._metrics.show_active(name, state.active())
        self._count_quarantined()

    def _count_quarantined(self) -> None:
        key = self._options.taint.key
        tainted = sum(bool(state.view and state.view.taints_with(key)) for state in self._states.values())
        self._metrics.quarantined_nodes.set(tainted)

    def _tell_ended(self, name: str, state: NodeState, ended: list[Fault]) -> None:
        for fault in ended:
            what = f"{fault.kind} {fault.code or ''} {fault.pci or ''}".strip()
            self._tell(name, state, "GPUFaultEnded", f"{what}: ended", datetime.now(UTC), warning=False)

    def _tell(self, name: str, state: NodeState, reason: str, message: str, at: datetime, *, warning: bool) -> None:
        self._events.add(name, state.view.uid if state.view else "", reason, message, at, warning=warning)


def event_reason(event: KernelEvent) -> str:
    """The Event's reason: `GPUXid79`, `NVSwitchSXid20034`; one word, as kubectl shows it."""
    names = {Kind.XID: "GPUXid", Kind.SXID: "NVSwitchSXid", Kind.GPU_LOST: "GPULost", Kind.PEERMEM: "NvidiaPeermem"}
    return f"{names[event.kind]}{'' if event.code is None or event.kind is Kind.GPU_LOST else event.code}"


def _is_stale(view: NodeView, state: NodeState) -> bool:
    """Whether the watch shows the node as it was before our own last write."""
    if not state.written_version or time.monotonic() - state.written_at > _STALE_S:
        return False
    try:
        return int(view.resource_version) < int(state.written_version)
    except ValueError:
        return False  # versions are opaque in principle, and numbers in every API server there is
