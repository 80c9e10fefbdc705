"""The controller's own Prometheus metrics. Label values that come from logs are bounded here."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gameday.cluster.alert_receiver import Trouble
from gameday.cluster.loki import Followed
from gameday.xid.catalogue import sxids, xids
from gameday.xid.lines import KernelEvent, Kind
from gameday_health.model import Fault
from gameday_health.signal import SignalKind
from gameday_health.transitions import IMPOSSIBLE_STAMP

_PREFIX = "gameday_health"
UNKNOWN_NODE = "unknown node"
"""The reason for ignoring a line with a label that names no node of this cluster."""
UNTRUSTED = "not trusted"
"""The reason for ignoring a line that the policy's `trust` leaves out."""
# From a tail's own latency to the 120 s that NVSentinel's acceptance tests allow for a cordon (docs/sources.md,
# NVSentinel).
_DECISION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class LeadMetrics:
    """The metric of every controller, leading or standing by, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leads = Gauge(
            f"{_PREFIX}_leader", "1 while this process is the one that reads and taints", registry=registry
        )


class Metrics:
    """The controller's metrics in one registry, while it leads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.kernel_events = Counter(
            f"{_PREFIX}_kernel_events", "GPU and NVSwitch lines recognised", ["node", "kind", "code"], registry=registry
        )
        self.fault_active = Gauge(
            f"{_PREFIX}_gpu_fault_active",
            "1 from a quarantining fault's recognition until its remedy is seen or its taint removed",
            ["node", "kind", "code", "pci_bus_id", "remedy"],
            registry=registry,
        )
        self.quarantined_nodes = Gauge(
            f"{_PREFIX}_quarantined_nodes", "Nodes that carry the faulty taint's key", registry=registry
        )
        self.decision_seconds = Histogram(
            f"{_PREFIX}_decision_seconds",
            "From a line's time to the taint written",
            buckets=_DECISION_BUCKETS,
            registry=registry,
        )
        self.log_lag = Gauge(
            f"{_PREFIX}_log_lag_seconds",
            "From the time of the last line that is younger than this process to its arrival here",
            registry=registry,
        )
        self.stream_connected = Gauge(
            f"{_PREFIX}_log_stream_connected",
            "1 for the way in which the log is followed now: the store's tail, or its range read again and again",
            ["by"],
            registry=registry,
        )
        self.show_followed(None)
        self.ignored_lines = Counter(
            f"{_PREFIX}_ignored_lines", "Recognised lines not acted upon", ["why"], registry=registry
        )
        self.dropped = Counter(
            f"{_PREFIX}_dropped",
            "Repeated or merely recorded lines and signals not handled, as too many of their node waited",
            ["source"],
            registry=registry,
        )
        self.unreadable_entries = Counter(
            f"{_PREFIX}_unreadable_log_entries",
            "Entries and streams in the log store's answers that are none",
            registry=registry,
        )
        self.signals = Counter(
            f"{_PREFIX}_signals",
            "Signals beside the kernel log that a rule of the policy answers",
            ["kind", "rule"],
            registry=registry,
        )
        self.ignored_signals = Counter(
            f"{_PREFIX}_ignored_signals",
            "Signals beside the kernel log not acted upon",
            ["kind", "why"],
            registry=registry,
        )
        self.webhook_troubles = Counter(
            f"{_PREFIX}_webhook_troubles",
            "Requests of the webhook, and entries in them, with alerts that may be missing",
            ["why"],
            registry=registry,
        )
        for trouble in Trouble:
            self.webhook_troubles.labels(trouble)
        self.source_up = Gauge(
            f"{_PREFIX}_source_up", "1 while the source's last request succeeded", ["source"], registry=registry
        )
        for why in (UNKNOWN_NODE, UNTRUSTED, IMPOSSIBLE_STAMP):
            self.ignored_lines.labels(why)  # a counter that begins at 1 has no increase
        self.last_line = Gauge(
            f"{_PREFIX}_last_line_timestamp_seconds",
            "The time of the node's newest line, or when one began to be awaited, where shippers beat; Unix seconds",
            ["node"],
            registry=registry,
        )
        self.withheld = Counter(
            f"{_PREFIX}_withheld_quarantines",
            "Quarantining lines of nodes left untainted, as too many others had just been tainted",
            registry=registry,
        )
        self.write_failures = Counter(
            f"{_PREFIX}_write_failures",
            "Requests the API server refused or did not answer",
            ["what"],
            registry=registry,
        )
        self._shown: dict[str, set[tuple[str, ...]]] = {}

    def show_followed(self, how: Followed | None) -> None:
        """Show how the log is followed; None if it is not."""
        for each in Followed:
            self.stream_connected.labels(each).set(each is how)

    def count_event(self, node: str, event: KernelEvent) -> None:
        self.kernel_events.labels(node, event.kind, event.name or code_label(event.kind, event.code)).inc()

    def show_active(self, node: str, active: list[Fault]) -> None:
        """Make these the node's only series. A series that ends is removed, not set to 0."""
        wanted: set[tuple[str, ...]] = {
            (node, _kind_label(fault.kind), code_label(fault.kind, fault.code), fault.pci or "", str(fault.remedy))
            for fault in active
        }
        for gone in self._shown.get(node, set()) - wanted:
            self.fault_active.remove(*gone)
        for series in wanted:
            self.fault_active.labels(*series).set(1)
        if wanted:
            self._shown[node] = wanted
        else:
            self._shown.pop(node, None)

    def forget(self, node: str) -> None:
        """Remove the series of a node that is gone."""
        self.show_active(node, [])
        self.last_line.remove(node)


def _kind_label(kind: Kind | SignalKind) -> str:
    """Return the kind as metrics name it: a GPU lost without an Xid is the fault of Xid 79, with the same alert."""
    return str(Kind.XID if kind is Kind.GPU_LOST else kind)


def code_label(kind: Kind | SignalKind, code: int | None) -> str:
    """Return the code, or `other` if no catalogue has it: a kernel log must not make the label grow without bound."""
    if code is None:
        return ""
    known = sxids() if kind is Kind.SXID else xids()
    return str(code) if code in known else "other"
