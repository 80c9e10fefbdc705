"""A node as the controller knows it: its faults and its log's progress, and how its annotation keeps both."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from gameday.xid.catalogue import Remedy
from gameday.xid.lines import Kind
from gameday_health.signal import SignalKind

MANAGER = "gameday-health"
"""The controller's field manager, and the reporting component of its Events."""
REASON = "gameday.dev/faulty-reason"
"""The annotation that says why the node is tainted; it stays as long as the taint."""

# Everyone who watches nodes reads it, so it is short: room for eight lost GPUs and their lines, with some to spare.
LONGEST_ANNOTATION = 2048
_LONGEST_WHY = 160
MOST_FAULTS = 64
MOST_SEEN_LINES = 16
MOST_SEEN_SIGNALS = 16
MOST_HELD = 16
"""Conditions of one node; a policy names one or two."""
MOST_SIGHTINGS = 32
"""Twice the highest threshold of a policy's watch, so that two devices of one node can be watched."""
DISORDER_S = 1.0
"""Seconds that a line's stamp may be behind that of the line before it: printk takes the clock before it takes its
place in the ring buffer (kernel/printk/printk.c, vprintk_store), so lines of two CPUs can change places. In practice
milliseconds.
"""
EARLIEST_BOOT_NS = 1_504_224_000 * 10**9
"""1 September 2017, the month in which Kubernetes 1.8 brought device plugins: no GPU node has been up for longer."""
_LONGEST_BOOT = 64  # a bootID is a UUID, 36 characters
_DIGEST_BYTES = 8
_Digest = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{2 * _DIGEST_BYTES}}}$")]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Sighting(_Record):
    """An occurrence of a watched signal that counted."""

    rule: str
    gpu: str | None = None
    """PCI address; None for a signal about the whole node."""
    ns: int
    """Unix ns."""


class Held(_Record):
    """A condition's status that a rule answers, and since when it has held without a visible end."""

    type: str
    status: str
    since_ns: int
    """Unix ns."""


class LogProgress(_Record):
    """The part of a node's kernel log that is handled, and the same for its other signals.

    A shipper that starts again ships the whole log again. An alert or a condition is shown as long as it lasts.
    """

    boot: str = Field(default="", max_length=_LONGEST_BOOT)
    """The bootID under which the newest line was seen."""
    until_ns: int = 0
    """Everything that the log store has up to this is handled; Unix ns."""
    until_uptime_s: float = 0.0
    """The highest stamp of that boot's recognised lines: the log is in order, except for DISORDER_S."""
    lines: tuple[_Digest, ...] = Field(default=(), max_length=MOST_SEEN_LINES)
    """Digests of the newest quarantining lines, to recognise lines within DISORDER_S of the highest stamp."""
    returned_ns: int = 0
    """End of the node's last quarantine; signals other than lines that began before it are handled. Unix ns."""
    signals: tuple[_Digest, ...] = Field(default=(), max_length=MOST_SEEN_SIGNALS)
    """Keys of the newest other signals that were recorded or acted upon."""
    sightings: tuple[Sighting, ...] = Field(default=(), max_length=MOST_SIGHTINGS)
    """The newest occurrences of watched signals."""
    held: tuple[Held, ...] = Field(default=(), max_length=MOST_HELD)
    """The conditions that hold."""

    def advanced(self, boot: str, until_ns: int, uptime_s: float | None) -> LogProgress:
        """Return the progress after one more line.

        Args:
            boot: The bootID under which the line was seen.
            until_ns: The line's time in the log store, Unix ns.
            uptime_s: The line's own stamp; None if it has none, or if it may be another boot's.
        """
        boot = boot[:_LONGEST_BOOT]
        mark, lines = (self.until_uptime_s, self.lines) if boot == self.boot else (0.0, ())
        if uptime_s is not None and uptime_s > mark:
            lines = lines if uptime_s - DISORDER_S <= mark else ()
            mark = uptime_s
        until_ns = max(self.until_ns, until_ns)
        return self.model_copy(update={"boot": boot, "until_ns": until_ns, "until_uptime_s": mark, "lines": lines})

    def with_line(self, line: str) -> LogProgress:
        """Return the progress with the digest of one more quarantining line."""
        return self.model_copy(update={"lines": (*self.lines, line)[-MOST_SEEN_LINES:]})

    def with_signal(self, key: str) -> LogProgress:
        """Return the progress with the key of one more signal that is not a line of the kernel log."""
        return self.model_copy(update={"signals": (*self.signals, key)[-MOST_SEEN_SIGNALS:]})

    def with_sighting(self, sighting: Sighting) -> LogProgress:
        """Return the progress with one more occurrence of a watched signal."""
        return self.model_copy(update={"sightings": (*self.sightings, sighting)[-MOST_SIGHTINGS:]})

    def with_held(self, held: Held) -> LogProgress:
        """Return the progress with one more condition that holds."""
        return self if held in self.held else self.model_copy(update={"held": (*self.held, held)[-MOST_HELD:]})

    def ended(self, now_ns: int) -> LogProgress:
        """Return the progress after the end of the node's quarantine, which starts it again."""
        return self.model_copy(update={"returned_ns": now_ns, "signals": (), "sightings": ()})

    def without_lines(self) -> LogProgress:
        """Return the part that outlives a boot: everything except the kernel log's."""
        kept = {"signals": self.signals, "sightings": self.sightings, "held": self.held}
        return LogProgress(returned_ns=self.returned_ns, **kept)

    def merged(self, other: LogProgress) -> LogProgress:
        """Combine two records of one node, one saved later than the other."""
        newer, older = (self, other) if self.until_ns >= other.until_ns else (other, self)
        newer = newer._with_signals_of(older)
        # The annotation's copy has none.
        newer = newer.model_copy(update={"held": newer.held or older.held})
        if newer.boot != older.boot:
            return newer
        lines = (*(line for line in older.lines if line not in newer.lines), *newer.lines)
        mark = max(newer.until_uptime_s, older.until_uptime_s)
        return newer.model_copy(update={"until_uptime_s": mark, "lines": lines[-MOST_SEEN_LINES:]})

    def _with_signals_of(self, older: LogProgress) -> LogProgress:
        if older.returned_ns != self.returned_ns:
            last = max(self, older, key=lambda record: record.returned_ns)
            return self.model_copy(
                update={"returned_ns": last.returned_ns, "signals": last.signals, "sightings": last.sightings}
            )
        signals = (*(key for key in older.signals if key not in self.signals), *self.signals)
        found = sorted({*older.sightings, *self.sightings}, key=lambda sighting: sighting.ns)
        return self.model_copy(
            update={"signals": signals[-MOST_SEEN_SIGNALS:], "sightings": tuple(found[-MOST_SIGHTINGS:])}
        )


class Fault(_Record):
    """A quarantining fault of a device."""

    kind: Kind | SignalKind
    """The kind of the kernel log's line, or of another signal."""
    code: int | None
    name: str = Field(default="", max_length=316)
    """The alert, condition, Event's reason, rule, or message of the driver; empty for lines with a code."""
    pci: str | None
    at: AwareDatetime
    """The moment at which it happened; a line's is the log store's time."""
    remedy: Remedy
    why: str = ""
    remedied: AwareDatetime | None = None
    """The time at which the remedy was seen; None while the fault is active."""

    def is_same(self, other: Fault) -> bool:
        """Return True for two signals of one mishap: the same code or name, and not two different devices."""
        is_one_device = self.pci == other.pci or None in (self.pci, other.pci)
        return is_one_device and (self.code, self.name) == (other.code, other.name)


class Reason(Fault):
    """The annotation's content: first the fault that led to the taint, then the others."""

    policy: str
    boot: str
    """The node's bootID when this was written."""
    decided: AwareDatetime
    others: tuple[Fault, ...] = ()
    more: int = 0
    """Faults that did not fit."""
    seen: LogProgress = LogProgress()
    """A copy of the checkpoint's, which is written a moment after the node, or not at all after a crash in between."""

    def faults(self) -> tuple[Fault, ...]:
        """Return all faults, the oldest first."""
        first = Fault.model_validate(self.model_dump(include=set(Fault.model_fields)))
        return (first, *self.others)


def digest(line: str) -> str:
    """Return a short digest by which a line is recognised."""
    return hashlib.blake2s(line.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).hexdigest()


def write_reason(faults: list[Fault], progress: LogProgress, policy: str, boot: str, decided: datetime) -> str:
    """Return the annotation's JSON in at most LONGEST_ANNOTATION bytes. Faults that do not fit are counted."""
    first, *others = faults
    head = first.model_dump() | {"why": first.why[:_LONGEST_WHY], "policy": policy, "boot": boot, "decided": decided}
    # Without them a signal that is shown again after a crash is recorded twice, but has no second effect.
    head["seen"] = progress.model_copy(update={"signals": (), "sightings": (), "held": ()})
    short = [fault.model_copy(update={"why": ""}) for fault in others]
    for fitting in range(len(short), -1, -1):
        reason = Reason.model_validate(head | {"others": tuple(short[:fitting]), "more": len(short) - fitting})
        text = reason.model_dump_json(exclude_defaults=True)
        if len(text.encode()) <= LONGEST_ANNOTATION:
            return text
    raise ValueError("a reason alone is bounded well below the annotation's limit")


def read_reason(text: str | None) -> Reason | None:
    """Return the annotation's content. None if it cannot be read: anyone may edit an annotation."""
    try:
        return Reason.model_validate_json(text) if text else None
    except ValidationError:
        return None


def read_progress(text: str | None) -> LogProgress:
    """Return a node's saved progress, or an empty one if it cannot be read."""
    try:
        return LogProgress.model_validate_json(text) if text else LogProgress()
    except ValidationError:
        return LogProgress()


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint as it is written on a node."""

    key: str
    value: str
    effect: str

    @classmethod
    def parse(cls, text: str) -> Taint:
        """Read `key=value:Effect` or `key:Effect`. Raises ValueError."""
        pair, _, effect = text.rpartition(":")
        key, _, value = pair.partition("=")
        if not key or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            raise ValueError(f"taint {text!r}: write it like trainy.konduktor.ai/faulty=true:NoSchedule")
        return cls(key, value, effect)

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"


class NodeCondition(NamedTuple):
    """A condition of a node's status, as the API server has it."""

    type: str
    status: str
    reason: str
    message: str
    since: str
    """lastTransitionTime, RFC 3339."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """The parts of a Node that this controller needs."""

    name: str
    uid: str
    resource_version: str
    boot_id: str
    taints: tuple[tuple[tuple[str, str], ...], ...]
    """The taints with all their fields, in order, so that writing them back loses nothing."""
    reason: str | None
    has_gpus: bool
    """True if the node has the label that makes deploy/dmesg-shipper run there."""
    conditions: tuple[NodeCondition, ...] = ()
    """The conditions of the types that the policy asks for."""

    @classmethod
    def of(cls, node: dict[str, object], conditions: Collection[str] = ()) -> NodeView:
        """Return the view of a Node's JSON, with only the conditions of the types in `conditions`."""
        meta, spec, status = (_mapping(node.get(part)) for part in ("metadata", "spec", "status"))
        annotations = _mapping(meta.get("annotations"))
        taints = spec.get("taints") or []
        return cls(
            name=str(meta.get("name", "")),
            uid=str(meta.get("uid", "")),
            resource_version=str(meta.get("resourceVersion", "")),
            boot_id=str(_mapping(status.get("nodeInfo")).get("bootID", "")),
            taints=tuple(tuple(sorted(taint.items())) for taint in taints) if isinstance(taints, list) else (),
            reason=_text(annotations.get(REASON)),
            has_gpus=_mapping(meta.get("labels")).get("nvidia.com/gpu.present") == "true",
            conditions=tuple(_conditions(status.get("conditions"), conditions)) if conditions else (),
        )

    def taints_with(self, key: str) -> list[Taint]:
        """Return the node's taints with this key, of any value and effect."""
        found = [dict(taint) for taint in self.taints]
        return [Taint(key, taint.get("value", ""), taint["effect"]) for taint in found if taint["key"] == key]


def _conditions(found: object, types: Collection[str]) -> Iterator[NodeCondition]:
    for condition in map(_mapping, found if isinstance(found, list) else ()):
        if condition.get("type") in types:
            texts = [str(condition.get(key, "")) for key in ("status", "reason", "message", "lastTransitionTime")]
            status, reason, message, since = texts
            yield NodeCondition(str(condition["type"]), status, reason, message[:_LONGEST_WHY], since)


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


@dataclass
class NodeState:
    """The worker's memory of a node; only the worker uses it."""

    view: NodeView | None = None
    faults: list[Fault] = field(default_factory=list)
    """Oldest first; empty unless the node is quarantined or about to be."""
    progress: LogProgress = field(default_factory=LogProgress)
    handled_before_ns: int = 0
    """Lines up to this were handled by an earlier process; Unix ns."""
    highest_stamp_ns: int = 0
    """The store's time of the line with the highest stamp, if this process read it; Unix ns."""
    boot_known_ns: int = 0
    """Since when the node is known under its boot; earlier lines may belong to the boot before. Unix ns."""
    booted_ns: int = EARLIEST_BOOT_NS
    """The node booted no earlier than this, by its newest beat or by the last sight of its previous boot. Unix ns."""
    previous_boot_seen_at: datetime | None = None
    """The last moment at which the node was still known under its previous boot."""
    has_unknown_past: bool = False
    """True if nothing is known of the lines that this boot had before this process saw the node."""
    history_until_s: float | None = None
    """Lines with stamps up to this are from before anything was known of the node."""
    history_until_ns: int = 0
    """The same for lines with a time of their own; Unix ns."""
    quarantined_at: datetime | None = None
    """The moment at which its present quarantine was decided."""
    last_seen_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    recent_digests: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """Digests of the newest recognised lines of this boot."""
    needs_write: bool = False
    """The node's annotation (and its taint, if there are faults) is behind `faults`, and behind a write under way."""
    unwritten_faults: list[Fault] = field(default_factory=list)
    """Faults with a taint that is not written yet."""
    retry_at: float = 0.0
    """No write before this moment of the monotonic clock."""
    failures: int = 0
    """Failed writes in a row."""
    written_version: str = ""
    """resourceVersion of our last write: an older one from a watch is stale."""
    written_at: float = 0.0
    """The time of our last write; monotonic clock."""

    def active(self) -> list[Fault]:
        """Return the faults with no remedy seen yet."""
        return [fault for fault in self.faults if fault.remedied is None]
