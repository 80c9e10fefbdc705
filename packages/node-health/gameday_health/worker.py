"""The state of every node, and everything that is written for it: taints and reasons, Events, metrics, checkpoint.

A wanted write is kept in memory until the API server has taken it (level-triggered). So an outage delays a
quarantine, and loses none.
"""

from __future__ import annotations

import heapq
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gameday.cluster.back_off import pause_s
from gameday.cluster.json_api import JsonApi
from gameday.cluster.kube_errors import reason_of
from gameday.cluster.loki import nanoseconds
from gameday.documents.fields import format_duration
from gameday.xid.decide import Response
from gameday.xid.lines import KernelEvent, Kind
from gameday.xid.record import clean
from gameday_health import transitions
from gameday_health.checkpoint import Checkpoint
from gameday_health.conditions import conditions_seen, still_held
from gameday_health.detect import Detection
from gameday_health.events import NodeEvents
from gameday_health.metrics import UNKNOWN_NODE, UNTRUSTED, Metrics
from gameday_health.model import Fault, LogProgress, NodeState, NodeView, Taint
from gameday_health.policy import Policy, PolicyDecision
from gameday_health.policy_files import kernel_signal
from gameday_health.quarantine import Failure, NodeWrite, Quarantine, Result, Written
from gameday_health.signal import Signal, SignalKind

log = logging.getLogger(__name__)

RETRY_S = (0.25, 10.0)
"""The pause after a first failure, and the longest one; doubled in between."""
WRITES_AT_ONCE = 8
"""Our choice: few compared with the 200 mutating requests that an API server takes at a time by default
(kube-apiserver's --max-mutating-requests-inflight).
"""

# Lines and signals of one node that the watch does not show yet, and the number of such nodes: any label value counts.
_MOST_HELD_BACK = 100
_MOST_HELD_NODES = 1000
# A watch may be behind our own last write for this long. Later, a lower resourceVersion means that the API server was
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
    """Namespace of the checkpoint's ConfigMap."""


@dataclass(slots=True)
class _UnderWay:
    """A write that a thread of the pool is making."""

    state: NodeState
    newest_view: NodeView | None = None
    """The node as the watch has shown it meanwhile; taken in after the write."""


class Worker:
    """The owner of all nodes' state, for one thread: nothing here is locked."""

    def __init__(
        self,
        api: JsonApi,
        options: Options,
        metrics: Metrics,
        on_written: Callable[[Result | Failure], object] | None = None,
    ) -> None:
        """Prepare; nothing is read or written yet.

        Args:
            api: The API server.
            options: The settings.
            metrics: The metrics to keep.
            on_written: Called by other threads with the outcome of each write to a node, to be given to
                `handle_written`. None: `write_due` writes in its own thread, one node after the other.
        """
        self._server = api.server
        self._options = options
        self._policy = options.policy
        self._metrics = metrics
        self._states: dict[str, NodeState] = {}
        self._quarantined_at: dict[str, datetime] = {}
        """Begin of each quarantine that counts for the brake, by node."""
        self._by_begin: list[tuple[datetime, str]] = []
        """A heap of the same, to find those that no longer count."""
        self._tainted: set[str] = set()
        self._unwritten: dict[str, None] = {}
        """Nodes with a write that is wanted or under way, in the order in which it was first wanted."""
        self._under_way: dict[str, _UnderWay] = {}
        self._held_back: OrderedDict[str, deque[Detection | Signal]] = OrderedDict()
        """By node, the one that has waited longest first."""
        self._events = NodeEvents(api)
        conditions = {rule.condition.type for rule in self._policy.rules if rule.condition}
        self._quarantine = Quarantine(api, options.taint, self._policy.name, conditions)
        self._checkpoint = Checkpoint(api, options.namespace)
        self._on_written = on_written
        self._pool = ThreadPoolExecutor(WRITES_AT_ONCE, "write")
        self._started_ns = time.time_ns()
        self._all_known = False
        self._shippers_beat = False

    def load(self) -> int:
        """Read the checkpoint, before anything else. Returns and raises what `Checkpoint.load` does."""
        return self._checkpoint.load()

    def since(self, source: SignalKind) -> int:
        """Return the Unix ns from which to read a source, after `load`."""
        return self._checkpoint.since(source)

    def all_nodes_known(self) -> None:
        """Drop the checkpoint of all nodes that `handle_node` was not given: they do not exist."""
        self._all_known = True
        self._checkpoint.keep_only(self._states.keys())

    def seconds_until_due(self) -> float:
        """Return the seconds until `write_due` has something to do, or infinity if nothing waits."""
        now = time.monotonic()
        idle = (name for name in self._unwritten if name not in self._under_way)
        may_write = len(self._under_way) < WRITES_AT_ONCE
        waits = [self._states[name].retry_at - now for name in idle] if may_write else []
        events_s = math.inf if self._under_way else self._events.seconds_until_due()
        return max(0.0, min([*waits, events_s], default=math.inf))

    def write_due(self) -> None:
        """Write everything due: nodes first, then a few Events, then the checkpoint."""
        for name in list(self._unwritten):
            if len(self._under_way) >= WRITES_AT_ONCE:
                break
            self._write(name)
        if not self._under_way:
            self._events.flush()
        self.save(immediately=False)

    def save(self, *, immediately: bool) -> None:
        """Save the checkpoint; unless `immediately`, skip it if it was saved a moment ago.

        No cursor passes a signal that waits for its quarantine to be written.
        """
        self._checkpoint.save(with_cursors=not self._unwritten, immediately=immediately)

    def close(self) -> None:
        """Wait for the writes under way, and save the checkpoint."""
        self._pool.shutdown(cancel_futures=True)
        self.save(immediately=True)

    def handle_node(self, view: NodeView) -> None:
        """Take in a node that is new or changed."""
        if under_way := self._under_way.get(view.name):
            under_way.newest_view = view
            return
        now = datetime.now(UTC)
        self._checkpoint.drop_outdated(view.name, view.boot_id)
        state = self._states.get(view.name)
        before = state.view if state else None
        if state is None:
            noted = self._checkpoint.progress(view.name)
            state = self._states[view.name] = transitions.initial_state(view, noted, self._options.taint.key, now)
            if not self._all_known and state.progress == LogProgress():
                transitions.forget_past(state, now)
            self._refresh(view.name, state)
            if self._shippers_beat and view.has_gpus:
                self._metrics.last_line.labels(view.name).set(time.time())
        else:
            if _is_stale(view, state):
                return
            ended = transitions.update_view(state, view, self._options.taint.key, now)
            self._refresh(view.name, state)
            self._add_ended_events(view.name, state, ended)
        self._handle_conditions(view, before, state)
        self._handle_held_back(view.name)

    def _handle_conditions(self, view: NodeView, before: NodeView | None, state: NodeState) -> None:
        """Take in the conditions that began, changed or ended."""
        noted = state.progress
        state.progress = noted.model_copy(update={"held": still_held(view, noted.held)})
        for seen in conditions_seen(view, before, state.progress.held):
            if any(rule.matches_status(seen.signal) for rule in self._policy.rules):
                state.progress = state.progress.with_held(seen.held)
            self.handle_signal(seen.signal)
        if state.progress.held != noted.held:
            self._record_progress(view.name, state)

    def _hold_back(self, item: Detection | Signal) -> None:
        """Keep the newest ones of a node until its next view."""
        self._held_back.setdefault(item.node, deque(maxlen=_MOST_HELD_BACK)).append(item)
        if len(self._held_back) > _MOST_HELD_NODES:
            self._held_back.popitem(last=False)

    def _handle_held_back(self, node: str) -> None:
        for held in self._held_back.pop(node, ()):
            if isinstance(held, Signal):
                self.handle_signal(held)
            else:
                self._handle_event(held)

    def handle_deleted_node(self, name: str) -> None:
        """Forget a node."""
        self._states.pop(name, None)
        self._under_way.pop(name, None)
        self._unwritten.pop(name, None)
        self._quarantined_at.pop(name, None)
        self._tainted.discard(name)
        self._checkpoint.forget(name)
        self._metrics.forget(name)
        self._metrics.quarantined_nodes.set(len(self._tainted))

    def handle_line(self, detection: Detection) -> None:
        """Take in a line of the kernel log."""
        ns = detection.line.ns
        if ns >= self._started_ns:
            self._metrics.log_lag.set(max(0.0, time.time() - ns / 1e9))
        self._checkpoint.advance(SignalKind.KERNEL_LOG, min(ns, time.time_ns()))
        state = self._states.get(detection.node)
        if state is None:
            self._metrics.ignored_lines.labels(UNKNOWN_NODE).inc()
        else:
            self._record_sign_of_life(detection, state)
        if detection.event is not None:
            self._handle_event(detection)

    def _record_sign_of_life(self, detection: Detection, state: NodeState) -> None:
        """Date the node's newest line, once shippers beat; without beats nobody can say when a line was due."""
        if detection.beat_uptime_s is not None:
            if not transitions.apply_beat(state, detection.line, detection.beat_uptime_s):
                self._metrics.ignored_lines.labels(transitions.IMPOSSIBLE_STAMP).inc()
                return
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
        if not self._policy.trusts(event):
            self._metrics.ignored_lines.labels(UNTRUSTED).inc()
            return
        state = self._states.get(detection.node)
        # A node that the watch does not show yet may have joined while the API server was away, or may have booted.
        if state is None or transitions.may_be_of_next_boot(state, line, event):
            self._hold_back(detection)
            return
        if why := transitions.ignore_reason(state, line, event):
            self._metrics.ignored_lines.labels(why).inc()
            return
        self._metrics.count_event(detection.node, event)
        if event.kind is Kind.GPU_RESET:
            self._apply_gpu_reset(detection, event, state)
        else:
            key = transitions.line_key(line, event)
            signal = replace(kernel_signal(event, detection.node, line.at), key=key)
            self._act_on(signal, state, self._policy.decide(signal))
        self._record_progress(detection.node, state)

    def _apply_gpu_reset(self, detection: Detection, event: KernelEvent, state: NodeState) -> None:
        if event.success:
            ended = transitions.apply_gpu_reset(state, event.pci, detection.line.at, datetime.now(UTC))
            self._refresh(detection.node, state)
            self._add_ended_events(detection.node, state, ended)

    def handle_signal(self, signal: Signal) -> None:
        """Take in a signal of any other source."""
        # With a clock that is ahead, a signal from before a node's return must not look like one from after it.
        signal = replace(signal, at=min(signal.at, signal.seen), text=clean(signal.text))
        state = self._states.get(signal.node)
        if state is None:
            self._metrics.ignored_signals.labels(signal.kind, UNKNOWN_NODE).inc()
            if signal.node:
                self._hold_back(signal)
            return
        if signal.kind is SignalKind.POD_LOG:
            self._checkpoint.advance(signal.kind, nanoseconds(signal.at))
        decision = self._policy.decide(signal)
        if decision.rule is None or decision.response is Response.IGNORE:
            return
        if why := transitions.ignore_signal_reason(state, signal):
            self._metrics.ignored_signals.labels(signal.kind, why).inc()
            return
        self._metrics.signals.labels(signal.kind, decision.rule.name).inc()
        transitions.record(state, signal)
        self._act_on(signal, state, decision)
        self._record_progress(signal.node, state)

    def source_read(self, source: SignalKind, until_ns: int) -> None:
        """Note that all signals of a source up to this moment were given to `handle_signal`; Unix ns."""
        self._checkpoint.advance(source, until_ns)

    def _record_progress(self, node: str, state: NodeState) -> None:
        # Otherwise the signal would count as handled before it has its effect on the node; `handle_written` records it.
        if node not in self._unwritten:
            self._checkpoint.record(node, state.progress)

    def _act_on(self, signal: Signal, state: NodeState, decision: PolicyDecision) -> None:
        match decision.response:
            case Response.IGNORE:
                return
            case Response.QUARANTINE:
                act = self._quarantine_node(signal, state, decision)
            case Response.WATCH:
                act = self._watch(signal, state, decision)
            case Response.WORKLOAD:
                act = "the workload's own error, node kept"
            case Response.EVENT:
                act = "recorded only"
        where = f" on {signal.gpu}" if signal.gpu else ""
        text = signal.event.text if signal.event else signal.text
        self._add_event(
            signal.node,
            state,
            event_reason(signal),
            f"{decision.reason}{where}: {act} (policy {self._policy.name}). {text}",
            signal.at,
            warning=decision.response is not Response.WORKLOAD,
        )

    def _watch(self, signal: Signal, state: NodeState, decision: PolicyDecision) -> str:
        """Count a watched signal and quarantine the node if the rule's number is reached; return what was done."""
        assert decision.rule and decision.rule.watch
        watch = decision.rule.watch
        count = transitions.count_sighting(state, signal, decision.rule)
        if count >= watch.times:
            return self._quarantine_node(signal, state, decision)
        if signal.kind is SignalKind.KERNEL_LOG:
            transitions.record(state, signal)
        return f"seen {count} of {watch.times} times within {format_duration(watch.within)}, node kept"

    def _quarantine_node(self, signal: Signal, state: NodeState, decision: PolicyDecision) -> str:
        """Quarantine the node if that is right; return what was done, for its Event."""
        now = datetime.now(UTC)
        if signal.event:
            transitions.record(state, signal)
            if transitions.is_history(state, signal.event):
                return "from before anything was known of this node, so it is recorded only"
        if not state.faults and self._is_braked(now):
            self._metrics.withheld.inc()
            window = format_duration(self._policy.brake.window)
            return f"NOT quarantined, as too many nodes were within {window}: taint it by hand if this is true"
        transitions.add_fault(state, signal, decision, now)
        self._refresh(signal.node, state)
        return f"node quarantined, remedy: {decision.remedy}"

    def _is_braked(self, now: datetime) -> bool:
        brake = self._policy.brake
        while self._by_begin and self._by_begin[0][0] <= now - brake.window:
            at, name = heapq.heappop(self._by_begin)
            if self._quarantined_at.get(name) == at:
                del self._quarantined_at[name]
        return len(self._quarantined_at) >= max(brake.least, brake.share * len(self._states))

    def _count_for_brake(self, name: str, state: NodeState) -> None:
        if not state.faults or state.quarantined_at is None:
            self._quarantined_at.pop(name, None)
        elif self._quarantined_at.get(name) != state.quarantined_at:
            self._quarantined_at[name] = state.quarantined_at
            heapq.heappush(self._by_begin, (state.quarantined_at, name))

    def _write(self, name: str) -> None:
        state = self._states[name]
        if name in self._under_way or state.retry_at > time.monotonic():
            return
        if not state.faults:
            # The reason on the node may be the only other copy, so it stays until this is saved.
            self._checkpoint.record(name, state.progress)
            if not self._checkpoint.save(with_cursors=False, immediately=True):
                self._try_later(state, "checkpoint")
                return
        write = NodeWrite(
            name, state.view, tuple(state.faults), tuple(state.unwritten_faults), state.progress, datetime.now(UTC)
        )
        state.needs_write = False
        self._under_way[name] = _UnderWay(state)
        if self._on_written is None:
            self.handle_written(self._quarantine.attempt(write))
        else:
            self._pool.submit(self._attempt, write, self._on_written)

    def _attempt(self, write: NodeWrite, on_written: Callable[[Result | Failure], object]) -> None:
        on_written(self._quarantine.attempt(write))

    def handle_written(self, result: Result | Failure) -> None:
        """Take in the outcome of a write."""
        write = result.write
        under_way = self._under_way.pop(write.name, None)
        if under_way is None or self._states.get(write.name) is not under_way.state:
            return  # the node was deleted meanwhile
        state = under_way.state
        if isinstance(result, Failure):
            if not state.failures:
                why = reason_of(result.error)
                log.warning("node %s not written at %s, trying again: %s", write.name, self._server, why)
            state.needs_write = True
            self._try_later(state, "node")
        elif result.written is Written.GONE or result.view is None:
            self.handle_deleted_node(write.name)
            return
        else:
            self._take_in(result, result.view, state)
        if under_way.newest_view:
            self.handle_node(under_way.newest_view)

    def _take_in(self, result: Result, view: NodeView, state: NodeState) -> None:
        write, now = result.write, datetime.now(UTC)
        state.failures, state.retry_at = 0, 0.0
        if not state.needs_write:
            self._unwritten.pop(write.name, None)
        if result.written is Written.TAINTED:
            for fault in write.new_faults:
                self._metrics.decision_seconds.observe(max(0.0, (now - fault.at).total_seconds()))
        if result.foreign:
            foreign = ", ".join(str(taint) for taint in result.foreign)
            message = f"{foreign} is on the node already and not ours: left alone, {self._options.taint} not added"
            self._add_event(write.name, state, "TaintConflict", message, now, warning=True)
        state.unwritten_faults = [fault for fault in state.unwritten_faults if fault not in write.new_faults]
        self._record_progress(write.name, state)
        state.written_version, state.written_at = view.resource_version, time.monotonic()
        transitions.update_view(state, view, self._options.taint.key, now)
        self._refresh(write.name, state)
        self.save(immediately=not self._unwritten)

    def _try_later(self, state: NodeState, what: str) -> None:
        self._metrics.write_failures.labels(what).inc()
        state.failures += 1
        state.retry_at = time.monotonic() + pause_s(state.failures, *RETRY_S)

    def _refresh(self, name: str, state: NodeState) -> None:
        """Make the metrics and the list of pending writes agree with the state."""
        if state.needs_write:
            self._unwritten[name] = None
        self._count_for_brake(name, state)
        is_tainted = bool(state.view and state.view.taints_with(self._options.taint.key))
        (self._tainted.add if is_tainted else self._tainted.discard)(name)
        self._metrics.show_active(name, state.active())
        self._metrics.quarantined_nodes.set(len(self._tainted))

    def _add_ended_events(self, name: str, state: NodeState, ended: list[Fault]) -> None:
        for fault in ended:
            what = f"{fault.kind} {fault.code or fault.name} {fault.pci or ''}".strip()
            self._add_event(name, state, "GPUFaultEnded", f"{what}: ended", datetime.now(UTC), warning=False)

    def _add_event(
        self, name: str, state: NodeState, reason: str, message: str, at: datetime, *, warning: bool
    ) -> None:
        self._events.add(name, state.view.uid if state.view else "", reason, message, at, warning=warning)


_SIGNAL_REASONS = {
    SignalKind.ALERT: "HealthAlert",
    SignalKind.CONDITION: "HealthCondition",
    SignalKind.EVENT: "HealthEvent",
    SignalKind.METRIC: "HealthMetric",
    SignalKind.POD_LOG: "HealthPodLog",
}
_KERNEL_REASONS = {
    Kind.XID: "GPUXid",
    Kind.SXID: "NVSwitchSXid",
    Kind.GPU_LOST: "GPULost",
    Kind.PEERMEM: "NvidiaPeermem",
    Kind.DRIVER: "NvidiaDriver",
    Kind.OTHER: "KernelLine",
}


def event_reason(signal: Signal) -> str:
    """Return the Event's reason, one word as kubectl shows it: `GPUXid79`, `NVSwitchSXid20034`, `HealthAlert`."""
    event = signal.event
    if event is None:
        return _SIGNAL_REASONS[signal.kind]
    return f"{_KERNEL_REASONS[event.kind]}{'' if event.code is None or event.kind is Kind.GPU_LOST else event.code}"


def _is_stale(view: NodeView, state: NodeState) -> bool:
    """Return True if the watch shows the node as it was before our own last write."""
    if not state.written_version or time.monotonic() - state.written_at > _STALE_S:
        return False
    try:
        return int(view.resource_version) < int(state.written_version)
    except ValueError:
        return False  # versions are opaque in principle, but numbers in every known API server
