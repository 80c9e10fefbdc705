"""How what is known of a node changes, by what is seen. Pure: no client, and time comes in as an argument."""

from __future__ import annotations

from datetime import datetime, timedelta

from gameday.cluster.loki import LogLine, nanoseconds
from gameday.health.model import (
    DISORDER_S,
    MOST_FAULTS,
    MOST_SEEN_LINES,
    Fault,
    NodeState,
    NodeView,
    Reason,
    Seen,
    digest,
    read_reason,
)
from gameday.xid.catalogue import Remedy
from gameday.xid.decide import Decision
from gameday.xid.lines import KernelEvent

_MOST_RECENT_LINES = 256
_BY_BOOT = frozenset({Remedy.REBOOT, Remedy.GPU_RESET})
# How much older than the first beat of a node of which nothing is known a line may be and still quarantine it: what
# happened while the controller was being installed or started. Ample for the drift of a kernel's stamps against its
# uptime, which the beat tells: printk's clock follows no time server.
_HISTORY_AFTER_S = 600.0


def first_seen(view: NodeView, noted: Seen, key: str, now: datetime) -> NodeState:
    """A node as it and the checkpoint tell, after this controller or the node has just started."""
    reason = read_reason(view.reason)
    seen = noted.merged(_seen_by(reason, tainted=bool(view.taints_with(key)), now=now)) if reason else noted
    now_ns = nanoseconds(now)
    # Not beyond now, if the node's clock was ahead: it may be right again.
    state = NodeState(view, seen=seen, old_until_ns=min(seen.until_ns, now_ns), boot_known_ns=now_ns, last_seen_at=now)
    if seen.boot == view.boot_id and seen.until_uptime_s:
        state.boot_known_ns = state.old_until_ns
    if view.reason is None:
        return state
    if not view.taints_with(key):
        state.unwritten = True  # the taint was removed while nobody looked: the annotation is to follow
        return state
    if reason:
        state.faults, state.quarantined_at = list(reason.faults()), reason.decided
        state.unwritten = seen != noted  # a crash came between the node and the checkpoint
        if reason.boot != view.boot_id:
            # Lines of the new boot may wait to be read, so `seen` must not move to now as it does below.
            _mark(state, [fault for fault in state.active() if fault.remedy in _BY_BOOT], now)
            state.unwritten = True
    return state


def _seen_by(reason: Reason, *, tainted: bool, now: datetime) -> Seen:
    """What a reason tells of lines: those from before its last writing are done with where the quarantine has ended."""
    until_ns = reason.seen.until_ns if tainted else max(reason.seen.until_ns, nanoseconds(reason.decided))
    # Anyone may edit an annotation: it must not silence lines yet to come.
    return reason.seen.model_copy(update={"until_ns": min(until_ns, nanoseconds(now)), "until_uptime_s": 0.0})


def seen_again(state: NodeState, view: NodeView, key: str, now: datetime) -> list[Fault]:
    """Take in a newer view; returns the faults it ended, by a boot or by the taint's removal."""
    before, state.view = state.view, view
    ended: list[Fault] = []
    if before and before.boot_id and view.boot_id and before.boot_id != view.boot_id:
        state.boot_since, state.boot_known_ns = state.last_seen_at, nanoseconds(now)
        state.past_unknown, state.history_until_s = False, None
        state.recent.clear()
        ended += _remedy(state, [fault for fault in state.active() if fault.remedy in _BY_BOOT], now)
    if before and before.taints_with(key) and not view.taints_with(key):
        ended += [fault for fault in state.active() if fault not in state.fresh]
        _forget_faults(state, now)
    state.last_seen_at = now
    return ended


def gpu_was_reset(state: NodeState, pci: str | None, at: datetime, now: datetime) -> list[Fault]:
    """The faults that a successful reset of this GPU at `at` ends."""
    return _remedy(
        state,
        [f for f in state.active() if f.remedy is Remedy.GPU_RESET and f.pci == pci and f.at <= at],
        now,
    )


def beat(state: NodeState, uptime_s: float) -> None:
    """The shipper beats, which it does first of all when it starts: the lines of before the first beat are history."""
    if state.past_unknown:
        state.past_unknown, state.history_until_s = False, uptime_s - _HISTORY_AFTER_S


def is_history(state: NodeState, event: KernelEvent) -> bool:
    """Whether a line is from before anything was known of its node: since then it may have been repaired."""
    if event.uptime_s is None or state.history_until_s is None:
        return False
    return event.uptime_s <= state.history_until_s


def may_be_of_next_boot(state: NodeState, line: LogLine, event: KernelEvent) -> bool:
    """Whether only the node's next bootID tells a line of a machine just booted from an old one shipped again."""
    if event.uptime_s is None or not _is_shipped_again(state, line, event.uptime_s):
        return False
    return line.at - timedelta(seconds=event.uptime_s) > state.last_seen_at


def why_ignored(state: NodeState, line: LogLine, event: KernelEvent) -> str | None:
    """Why a line is not to be acted upon, or None; it is remembered, so that its repetition is known."""
    key = _key(line, event)
    if line.ns <= state.old_until_ns:
        return "handled before"
    if state.boot_since and line.at < state.boot_since:
        return "before boot"
    if key in state.recent or key in state.seen.lines:
        return "repeated"
    if event.uptime_s is not None and _is_shipped_again(state, line, event.uptime_s):
        return "repeated"
    state.recent[key] = None
    if len(state.recent) > _MOST_RECENT_LINES:
        state.recent.popitem(last=False)
    _pass(state, line, event.uptime_s)
    return None


def _key(line: LogLine, event: KernelEvent) -> str:
    """A stamped line is the same line whenever it is shipped; one without a stamp is told by its time in the store."""
    return digest(event.line if event.uptime_s is not None else f"{line.ns} {event.line}")


def _is_shipped_again(state: NodeState, line: LogLine, uptime_s: float) -> bool:
    """By both its times: a line that only reached the store late is behind the newest in the store's time, too."""
    seen = state.seen
    if not state.view or seen.boot != state.view.boot_id or line.ns <= state.mark_ns:
        return False
    # Where there were more lines than digests, a line too many is better missed than a repaired node tainted.
    allowed_s = DISORDER_S if len(seen.lines) < MOST_SEEN_LINES else 0.0
    return uptime_s <= seen.until_uptime_s - allowed_s


def _pass(state: NodeState, line: LogLine, uptime_s: float | None) -> None:
    boot = state.view.boot_id if state.view else ""
    # A stamp of the boot before would be a mark that this boot reaches only after days.
    is_sure = line.ns >= max(state.boot_known_ns, state.mark_ns)
    before = state.seen
    state.seen = before.past(boot, line.ns, uptime_s if is_sure else None)
    if is_sure and state.seen.until_uptime_s > (before.until_uptime_s if before.boot == boot else 0.0):
        state.mark_ns = line.ns


def remember(state: NodeState, line: LogLine, event: KernelEvent) -> None:
    """A quarantining line, whatever is done about it: shipped again, it is no new one."""
    state.seen = state.seen.plus(_key(line, event))


def accept(state: NodeState, line: LogLine, event: KernelEvent, decision: Decision, now: datetime) -> bool:
    """Add a quarantining fault; False where it is already known."""
    fault = Fault(
        kind=event.kind, code=event.code, pci=event.pci, at=line.at, remedy=decision.remedy, why=decision.reason
    )
    if any(fault.is_same(known) for known in state.active()) or len(state.active()) >= MOST_FAULTS:
        return False
    if not state.faults:
        state.quarantined_at = now
    remedied = [known for known in state.faults if known.remedied and not fault.is_same(known)]
    state.faults = [*state.active(), fault, *remedied][:MOST_FAULTS]
    state.fresh.append(fault)
    state.unwritten = True
    return True


def _remedy(state: NodeState, ended: list[Fault], now: datetime) -> list[Fault]:
    if ended:
        _mark(state, ended, now)
        _handled(state, now)
    return ended


def _mark(state: NodeState, ended: list[Fault], now: datetime) -> None:
    state.faults = [f.model_copy(update={"remedied": now}) if f in ended else f for f in state.faults]


def _forget_faults(state: NodeState, now: datetime) -> None:
    """Of a node whose taint is gone; what is not written yet happened after it, and stays."""
    state.faults = list(state.fresh)
    _handled(state, now)


def _handled(state: NodeState, now: datetime) -> None:
    """After a restart, no line from before this moment is to begin it all again."""
    state.seen = state.seen.model_copy(update={"until_ns": max(state.seen.until_ns, nanoseconds(now))})
    state.unwritten = True
