"""The state of every node, and all that is written for it: taints and reasons, Events, metrics, the checkpoint.

A wanted write is kept in memory until the API server has taken it (level-triggered): an outage delays a quarantine and
loses none.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import urllib3
from kubernetes.client.exceptions import ApiException

from gameday.cluster.back_off import pause_s
from gameday.cluster.kube_errors import reason_of
from gameday.health import transitions
from gameday.health.api import Api
from gameday.health.checkpoint import Checkpoint
from gameday.health.detect import Detection
from gameday.health.events import NodeEvents
from gameday.health.metrics import UNKNOWN_NODE, Metrics
from gameday.health.model import Fault, LogProgress, NodeState, NodeView, Taint
from gameday.health.quarantine import Quarantine, Written
from gameday.xid.decide import Decision, Policy, Response, decide
from gameday.xid.lines import KernelEvent, Kind

log = logging.getLogger(__name__)

RETRY_S = (0.25, 10.0)
"""The pause after a first failure, and the longest; doubled in between."""

# Lines of nodes that the watch does not show yet.
_MOST_HELD_BACK = 1000
# The brake: half of the cluster's nodes within five minutes, as NVSentinel's breaker (docs/sources.md, NVSentinel).
# So many together are a wrong log more often than broken GPUs. Four are always allowed (our choice), as half of a few
# is soon reached.
_BRAKE_WINDOW = timedelta(minutes=5)
_BRAKE_SHARE = 0.5
_BRAKE_LEAST = 4
# A watch may be behind our own last write for this long; later, a lower resourceVersion means that the API server was
# restored from a backup, and the watch is right.
_STALE_S = 5.0


@dataclass(frozen=True)
class Options:
    """The controller's settings."""

    policy: Policy
    taint: Taint
    log_selector: str
    node_label: str
    namespace: str
    """The namespace of the checkpoint's ConfigMap."""


class Worker:
    """The owner of all nodes' state; for one thread, as nothing here is locked."""

    def __init__(self, api: Api, options: Options, metrics: Metrics) -> None:
        self._server = api.server
        self._options = options
        self._metrics = metrics
        self._states: dict[str, NodeState] = {}
        self._unwritten: set[str] = set()
        self._held_back: deque[Detection] = deque(maxlen=_MOST_HELD_BACK)
        self._events = NodeEvents(api)
        self._quarantine = Quarantine(api, options.taint, options.policy)
        self._checkpoint = Checkpoint(api, options.namespace)
        self._started_ns = time.time_ns()
        self._handled_ns = 0
        self._all_known = False
        self._shippers_beat = False

    def load(self) -> int:
        """Read the checkpoint, before anything else; returns and errors as `Checkpoint.load`."""
        return self._checkpoint.load()

    def all_nodes_known(self) -> None:
        """Drop the checkpoint of all nodes that `handle_node` was not given: there are no others."""
        self._all_known = True
        self._checkpoint.keep_only(self._states.keys())

    def seconds_until_due(self) -> float:
        """Return the seconds until `write_due` has something to do; infinity where nothing waits."""
        now = time.monotonic()
        waits = [self._states[name].retry_at - now for name in self._unwritten]
        return max(0.0, min([*waits, self._events.seconds_until_due()], default=math.inf))

    def write_due(self) -> None:
        """Write all that is due: nodes, Events, the checkpoint."""
        for name in list(self._unwritten):
            self._write(name)
        self._events.flush()
        self.save(immediately=False)

    def save(self, *, immediately: bool) -> None:
        """Save the checkpoint, or not `immediately` if it was saved a moment ago.

        Its cursor does not pass a line whose quarantine is not written yet.
        """
        self._checkpoint.save(0 if self._unwritten else self._handled_ns, immediately=immediately)

    def handle_node(self, view: NodeView) -> None:
        """Take in a node that is new or has changed."""
        now = datetime.now(UTC)
        self._checkpoint.drop_outdated(view.name, view.boot_id)
        state = self._states.get(view.name)
        if state is None:
            noted = self._checkpoint.progress(view.name)
            state = self._states[view.name] = transitions.initial_state(view, noted, self._options.taint.key, now)
            state.has_unknown_past = not self._all_known and state.progress == LogProgress()
            self._refresh(view.name, state)
            if self._shippers_beat and view.has_gpus:
                self._metrics.last_line.labels(view.name).set(time.time())
        else:
            if _is_stale(view, state):
                return
            ended = transitions.update_view(state, view, self._options.taint.key, now)
            self._refresh(view.name, state)
            self._add_ended_events(view.name, state, ended)
        for detection in [detection for detection in self._held_back if detection.node == view.name]:
            self._held_back.remove(detection)
            self._handle_event(detection)

    def handle_deleted_node(self, name: str) -> None:
        """Forget a node."""
        self._states.pop(name, None)
        self._unwritten.discard(name)
        self._checkpoint.forget(name)
        self._metrics.forget(name)
        self._count_quarantined()

    def handle_line(self, detection: Detection) -> None:
        """Take in a line of the kernel log."""
        ns = detection.line.ns
        if ns >= self._started_ns:
            self._metrics.log_lag.set(max(0.0, time.time() - ns / 1e9))
        self._handled_ns = max(self._handled_ns, min(ns, time.time_ns()))
        state = self._states.get(detection.node)
        if state is None:
            self._metrics.ignored_lines.labels(UNKNOWN_NODE).inc()
        else:
            self._record_sign_of_life(detection, state)
        if detection.event is not None:
            self._handle_event(detection)

    def _record_sign_of_life(self, detection: Detection, state: NodeState) -> None:
        """Date the node's newest line, once shippers beat: of others nobody can say when a line was due."""
        if detection.beat_uptime_s is not None:
            transitions.apply_beat(state, detection.beat_uptime_s)
            if not self._shippers_beat:
                self._shippers_beat = True
                for name, other in self._states.items():
                    if other.view and other.view.has_gpus:
                        self._metrics.last_line.labels(name).set(time.time())
        if self._shippers_beat:
            self._metrics.last_line.labels(detection.node).set(detection.line.ns / 1e9)

    def _handle_event(self, detection: Detection) -> None:
        line, event = detection.line, detection.event
        assert event
        state = self._states.get(detection.node)
        # A node that the watch does not show yet may have joined while the API server was away; so may a boot.
        if state is None or transitions.may_be_of_next_boot(state, line, event):
            self._held_back.append(detection)
            return
        if why := transitions.ignore_reason(state, line, event):
            self._metrics.ignored_lines.labels(why).inc()
            return
        self._metrics.count_event(detection.node, event)
        self._apply(detection, event, state)
        if not state.needs_write:
            # Otherwise the line would count as handled before its effect is on the node; `_write` records it.
            self._checkpoint.record(detection.node, state.progress)

    def _apply(self, detection: Detection, event: KernelEvent, state: NodeState) -> None:
        if event.kind is Kind.GPU_RESET:
            if event.success:
                ended = transitions.apply_gpu_reset(state, event.pci, detection.line.at, datetime.now(UTC))
                self._refresh(detection.node, state)
                self._add_ended_events(detection.node, state, ended)
            return
        self._act_on(detection, event, state, decide(event, self._options.policy))

    def _act_on(self, detection: Detection, event: KernelEvent, state: NodeState, decision: Decision) -> None:
        match decision.response:
            case Response.NOTHING:
                return
            case Response.QUARANTINE:
                act = self._quarantine_node(detection, event, state, decision)
            case Response.WORKLOAD:
                act = "the workload's own error, node kept"
            case Response.EVENT:
                act = "recorded only"
        where = f" on {event.pci}" if event.pci else ""
        self._add_event(
            detection.node,
            state,
            event_reason(event),
            f"{decision.reason}{where}: {act} (policy {self._options.policy}). {event.text}",
            detection.line.at,
            warning=decision.response is not Response.WORKLOAD,
        )

    def _quarantine_node(self, detection: Detection, event: KernelEvent, state: NodeState, decision: Decision) -> str:
        """Quarantine the node where that is right; return what was done, for its Event."""
        now = datetime.now(UTC)
        transitions.record_line(state, detection.line, event)
        if transitions.is_history(state, event):
            return "from before anything was known of this node, so it is recorded only"
        if not state.faults and self._is_braked(now):
            self._metrics.withheld.inc()
            return "NOT quarantined, as too many nodes were within five minutes: taint it by hand if this is true"
        transitions.add_fault(state, detection.line, event, decision, now)
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
            self._checkpoint.record(name, state.progress)
            if not self._checkpoint.save(immediately=True):
                self._try_later(state, "checkpoint")
                return
        try:
            result = self._quarantine.write(name, state, datetime.now(UTC))
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            if not state.failures:
                log.warning("node %s not written at %s, trying again: %s", name, self._server, reason_of(error))
            self._try_later(state, "node")
            return
        state.failures, state.retry_at, state.needs_write = 0, 0.0, False
        self._unwritten.discard(name)
        if result.written is Written.GONE or result.view is None:
            self.handle_deleted_node(name)
            return
        now = datetime.now(UTC)
        if result.written is Written.TAINTED:
            for fault in state.unwritten_faults:
                self._metrics.decision_seconds.observe(max(0.0, (now - fault.at).total_seconds()))
        if result.foreign:
            foreign = ", ".join(str(taint) for taint in result.foreign)
            message = f"{foreign} is on the node already and not ours: left alone, {self._options.taint} not added"
            self._add_event(name, state, "TaintConflict", message, now, warning=True)
        state.unwritten_faults = []
        self._checkpoint.record(name, state.progress)
        state.written_version, state.written_at = result.view.resource_version, time.monotonic()
        transitions.update_view(state, result.view, self._options.taint.key, now)
        self._refresh(name, state)
        self.save(immediately=not self._unwritten)

    def _try_later(self, state: NodeState, what: str) -> None:
        self._metrics.write_failures.labels(what).inc()
        state.failures += 1
        state.retry_at = time.monotonic() + pause_s(state.failures, *RETRY_S)

    def _refresh(self, name: str, state: NodeState) -> None:
        """Make the metrics and the list of things to write agree with the state."""
        if state.needs_write:
            self._unwritten.add(name)
        self._metrics.show_active(name, state.active())
        self._count_quarantined()

    def _count_quarantined(self) -> None:
        key = self._options.taint.key
        tainted = sum(bool(state.view and state.view.taints_with(key)) for state in self._states.values())
        self._metrics.quarantined_nodes.set(tainted)

    def _add_ended_events(self, name: str, state: NodeState, ended: list[Fault]) -> None:
        for fault in ended:
            what = f"{fault.kind} {fault.code or ''} {fault.pci or ''}".strip()
            self._add_event(name, state, "GPUFaultEnded", f"{what}: ended", datetime.now(UTC), warning=False)

    def _add_event(
        self, name: str, state: NodeState, reason: str, message: str, at: datetime, *, warning: bool
    ) -> None:
        self._events.add(name, state.view.uid if state.view else "", reason, message, at, warning=warning)


def event_reason(event: KernelEvent) -> str:
    """Return the Event's reason, one word as kubectl shows it: `GPUXid79`, `NVSwitchSXid20034`."""
    names = {Kind.XID: "GPUXid", Kind.SXID: "NVSwitchSXid", Kind.GPU_LOST: "GPULost", Kind.PEERMEM: "NvidiaPeermem"}
    return f"{names[event.kind]}{'' if event.code is None or event.kind is Kind.GPU_LOST else event.code}"


def _is_stale(view: NodeView, state: NodeState) -> bool:
    """Return True if the watch shows the node as it was before our own last write."""
    if not state.written_version or time.monotonic() - state.written_at > _STALE_S:
        return False
    try:
        return int(view.resource_version) < int(state.written_version)
    except ValueError:
        return False  # versions are opaque in principle, and numbers in every API server there is
