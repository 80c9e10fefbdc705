"""What the controller knows of a node: its faults, and how they are kept in the node's annotation."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from gameday.xid.catalogue import Remedy
from gameday.xid.lines import Kind

REASON = "gameday.dev/faulty-reason"
"""Why the node is tainted; there as long as the taint is."""

# Everyone who watches nodes reads it. Eight lost GPUs and the lines that said so fit with room to spare.
LONGEST_ANNOTATION = 2048
_LONGEST_WHY = 160
MOST_FAULTS = 64
MOST_SEEN_LINES = 16
DISORDER_S = 1.0
"""How far a line's stamp may be behind that of the line before it: printk takes the clock before it takes its place in
the ring buffer (kernel/printk/printk.c, vprintk_store), so lines of two CPUs can change places. Milliseconds; a second
is ample."""
_LONGEST_BOOT = 64  # a bootID is a UUID, 36 characters
_DIGEST_BYTES = 8
_Digest = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{2 * _DIGEST_BYTES}}}$")]


class _Note(BaseModel):
    model_config = ConfigDict(frozen=True)


class Seen(_Note):
    """How far a node's kernel log is done with; a shipper that starts again ships all of it again."""

    boot: str = Field(default="", max_length=_LONGEST_BOOT)
    """The bootID under which the newest line was seen."""
    until_ns: int = 0
    """Lines that the log store has up to this are done with; Unix ns."""
    until_uptime_s: float = 0.0
    """The highest stamp of that boot's recognised lines: the log is in order but for DISORDER_S."""
    lines: tuple[_Digest, ...] = Field(default=(), max_length=MOST_SEEN_LINES)
    """Digests of the newest quarantining lines: by these, lines within DISORDER_S of the highest stamp are known."""

    def past(self, boot: str, until_ns: int, uptime_s: float | None) -> Seen:
        """After a line of this boot; `uptime_s` None where it bears no stamp, or one that may be another boot's."""
        boot = boot[:_LONGEST_BOOT]
        mark, lines = (self.until_uptime_s, self.lines) if boot == self.boot else (0.0, ())
        if uptime_s is not None and uptime_s > mark:
            lines = lines if uptime_s - DISORDER_S <= mark else ()
            mark = uptime_s
        return Seen(boot=boot, until_ns=max(self.until_ns, until_ns), until_uptime_s=mark, lines=lines)

    def plus(self, line: str) -> Seen:
        return self.model_copy(update={"lines": (*self.lines, line)[-MOST_SEEN_LINES:]})

    def merged(self, other: Seen) -> Seen:
        """Both, where one was saved later than the other."""
        newer, older = (self, other) if self.until_ns >= other.until_ns else (other, self)
        if newer.boot != older.boot:
            return newer
        lines = (*(line for line in older.lines if line not in newer.lines), *newer.lines)
        mark = max(newer.until_uptime_s, older.until_uptime_s)
        return newer.model_copy(update={"until_uptime_s": mark, "lines": lines[-MOST_SEEN_LINES:]})


class Fault(_Note):
    """One quarantining fault of one device."""

    kind: Kind
    code: int | None
    pci: str | None
    at: AwareDatetime
    """When the log store says the line was written."""
    remedy: Remedy
    why: str = ""
    remedied: AwareDatetime | None = None
    """When the remedy was seen; None: the fault is active."""

    def is_same(self, other: Fault) -> bool:
        """Two lines about one mishap: the same code on the same device, or on a device one of them does not name."""
        return self.code == other.code and (self.pci == other.pci or None in (self.pci, other.pci))


class Reason(Fault):
    """The annotation: the fault that led to the taint, and after it the others."""

    policy: str
    boot: str
    """The node's bootID when this was written."""
    decided: AwareDatetime
    others: tuple[Fault, ...] = ()
    more: int = 0
    """Faults that did not fit."""
    seen: Seen = Seen()
    """Here too, because the checkpoint is written a moment after the node, or not at all if a crash comes between."""

    def faults(self) -> tuple[Fault, ...]:
        first = Fault.model_validate(self.model_dump(include=set(Fault.model_fields)))
        return (first, *self.others)


def digest(line: str) -> str:
    return hashlib.blake2s(line.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).hexdigest()


def write_reason(faults: list[Fault], seen: Seen, policy: str, boot: str, decided: datetime) -> str:
    """At most LONGEST_ANNOTATION bytes: what does not fit is counted."""
    first, *others = faults
    head = first.model_dump() | {"why": first.why[:_LONGEST_WHY], "policy": policy, "boot": boot, "decided": decided}
    head["seen"] = seen
    short = [fault.model_copy(update={"why": ""}) for fault in others]
    for fitting in range(len(short), -1, -1):
        reason = Reason.model_validate(head | {"others": tuple(short[:fitting]), "more": len(short) - fitting})
        text = reason.model_dump_json(exclude_defaults=True)
        if len(text.encode()) <= LONGEST_ANNOTATION:
            return text
    raise ValueError("a reason alone is bounded well below the annotation's limit")


def read_reason(text: str | None) -> Reason | None:
    """None also for what is not ours to read: anyone may edit an annotation."""
    try:
        return Reason.model_validate_json(text) if text else None
    except ValidationError:
        return None


def read_seen(text: str | None) -> Seen:
    try:
        return Seen.model_validate_json(text) if text else Seen()
    except ValidationError:
        return Seen()


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str

    @classmethod
    def parse(cls, text: str) -> Taint:
        """`key=value:Effect` or `key:Effect`; raises ValueError."""
        pair, _, effect = text.rpartition(":")
        key, _, value = pair.partition("=")
        if not key or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            raise ValueError(f"taint {text!r}: write it like trainy.konduktor.ai/faulty=true:NoSchedule")
        return cls(key, value, effect)

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"


@dataclass(frozen=True, slots=True)
class NodeView:
    """The parts of a Node this controller reads."""

    name: str
    uid: str
    resource_version: str
    boot_id: str
    taints: tuple[tuple[tuple[str, str], ...], ...]
    """Whole and in order, so that writing them back loses nothing."""
    reason: str | None
    has_gpus: bool
    """By the label for which deploy/dmesg-shipper runs there."""

    @classmethod
    def of(cls, node: dict[str, object]) -> NodeView:
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
        )

    def taints_with(self, key: str) -> list[Taint]:
        found = [dict(taint) for taint in self.taints]
        return [Taint(key, taint.get("value", ""), taint["effect"]) for taint in found if taint["key"] == key]


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


@dataclass
class NodeState:
    """One node, as the worker (and it alone) remembers it."""

    view: NodeView | None = None
    faults: list[Fault] = field(default_factory=list)
    """Oldest first; empty unless the node is, or is about to be, quarantined."""
    seen: Seen = field(default_factory=Seen)
    old_until_ns: int = 0
    """Lines up to this were handled by an earlier process."""
    mark_ns: int = 0
    """The store's time of the line with the highest stamp, where this process read it."""
    boot_known_ns: int = 0
    """Since when the node is known under its boot; lines from before may be those of the boot before."""
    boot_since: datetime | None = None
    """The last moment the node was still known under its previous boot."""
    past_unknown: bool = False
    """Nothing is known of the lines that this boot had before this process saw the node."""
    history_until_s: float | None = None
    """Lines with stamps up to this are from before anything was known of the node."""
    quarantined_at: datetime | None = None
    """When its present quarantine was decided."""
    last_seen_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    recent: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """Digests of the newest recognised lines of this boot."""
    unwritten: bool = False
    """The node's annotation (and where there are faults, its taint) is behind `faults`."""
    fresh: list[Fault] = field(default_factory=list)
    """Faults whose taint is not written yet."""
    retry_at: float = 0.0
    failures: int = 0
    written_version: str = ""
    """resourceVersion of our last write, and when by the monotonic clock: what a watch says of before is stale."""
    written_at: float = 0.0

    def active(self) -> list[Fault]:
        return [fault for fault in self.faults if fault.remedied is None]
