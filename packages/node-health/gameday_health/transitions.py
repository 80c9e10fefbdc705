"""Changes of a node's state, caused by nodes and lines. Pure: no client, and time is an argument."""

from __future__ import annotations

from datetime import datetime, timedelta

from gameday.cluster.loki import LogLine, nanoseconds
from gameday.xid.catalogue import Remedy
from gameday.xid.lines import KernelEvent, Kind
from gameday_health.model import (
    DISORDER_S,
    EARLIEST_BOOT_NS,
    MOST_FAULTS,
    MOST_SEEN_LINES,
    Fault,
    LogProgress,
    NodeState,
    NodeView,
    Reason,
    Sighting,
    digest,
    read_reason,
)
from gameday_health.policy import PolicyDecision, Rule
from gameday_health.signal import Signal, SignalKind

_MOST_RECENT_LINES = 256
IMPOSSIBLE_STAMP = "impossible stamp"
"""The reason for ignoring a line that claims a longer uptime than its node can have."""
_BY_BOOT = frozenset({Remedy.REBOOT, Remedy.GPU_RESET})
# A line may be this much older than the first beat of an unknown node, and still quarantine it: it came while the
# controller was being installed or started. Ample for the drift of a kernel's stamps against its uptime, which the beat
# carries: printk's clock follows no time server.
_HISTORY_AFTER_S = 600.0
# A stamp may be this much ahead of its node's uptime. 1000 s is the offset beyond which ntpd gives a clock up (its
# panic threshold), and more than the 600 s by which Loki lets a line's time be ahead (creation_grace_period). 500 ppm
# is the most by which Linux can steer a clock (MAXFREQ in include/linux/timex.h), and printk's is not steered.
_AHEAD_S = 1000.0
_DRIFT = 500e-6


def initial_state(view: NodeView, noted: LogProgress, key: str, now: datetime) -> NodeState:
    """Return the state of a node that is new to this controller since either of them started.

    Args:
        view: The node.
        noted: Its progress by the checkpoint.
        key: The key of our taint.
        now: The present moment.
    """
    reason = read_reason(view.reason)
    progress = noted.merged(_progress_by(reason, tainted=bool(view.taints_with(key)), now=now)) if reason else noted
    now_ns = nanoseconds(now)
    # Not later than now: the node's clock may have been ahead, and may be right again.
    state = NodeState(
        view,
        progress=progress,
        handled_before_ns=min(progress.until_ns, now_ns),
        boot_known_ns=now_ns,
        last_seen_at=now,
    )
    if progress.boot == view.boot_id and progress.until_uptime_s:
        state.boot_known_ns = state.handled_before_ns
    if view.reason is None:
        return state
    if not view.taints_with(key):
        state.needs_write = True  # the taint was removed meanwhile, so the annotation has to go, too
        # Nobody knows when, so everything that is shown now counts as begun before.
        state.progress = progress.ended(now_ns)
        return state
    if reason:
        state.faults, state.quarantined_at = list(reason.faults()), reason.decided
        state.needs_write = progress != noted  # a crash came between the node and the checkpoint
        if reason.boot != view.boot_id:
            # Lines of the new boot may wait to be read, so the progress must not move to now as it does below.
            _set_remedied(state, [fault for fault in state.active() if fault.remedy in _BY_BOOT], now)
            state.needs_write = True
    return state


def _progress_by(reason: Reason, *, tainted: bool, now: datetime) -> LogProgress:
    """Return the progress that a reason shows. Once its quarantine has ended, all lines before it are handled."""
    until_ns = reason.seen.until_ns if tainted else max(reason.seen.until_ns, nanoseconds(reason.decided))
    # Anyone may edit an annotation: it must not silence future lines.
    return reason.seen.model_copy(update={"until_ns": min(until_ns, nanoseconds(now)), "until_uptime_s": 0.0})


def update_view(state: NodeState, view: NodeView, key: str, now: datetime) -> list[Fault]:
    """Take in a newer view of the node; return the faults that a boot or the taint's removal ended."""
    before, state.view = state.view, view
    ended: list[Fault] = []
    if before and before.boot_id and view.boot_id and before.boot_id != view.boot_id:
        state.previous_boot_seen_at, state.boot_known_ns = state.last_seen_at, nanoseconds(now)
        state.booted_ns = max(state.booted_ns, nanoseconds(state.previous_boot_seen_at))
        state.has_unknown_past, state.history_until_s = False, None
        state.recent_digests.clear()
        ended += _end_faults(state, [fault for fault in state.active() if fault.remedy in _BY_BOOT], now)
    if before and before.taints_with(key) and not view.taints_with(key):
        ended += [fault for fault in state.active() if fault not in state.unwritten_faults]
        _drop_faults(state, now)
    state.last_seen_at = now
    return ended


def apply_gpu_reset(state: NodeState, pci: str | None, at: datetime, now: datetime) -> list[Fault]:
    """End the faults that a successful reset of this GPU at `at` remedies; return them."""
    return _end_faults(
        state,
        [f for f in state.active() if f.remedy is Remedy.GPU_RESET and f.pci == pci and f.at <= at],
        now,
    )


def apply_beat(state: NodeState, line: LogLine, uptime_s: float) -> bool:
    """Take in a beat of the shipper; return False for an impossible stamp.

    The shipper sends the first beat when it starts: lines from before it are history.
    """
    booted_ns = line.ns - int(uptime_s * 1e9)
    if booted_ns < EARLIEST_BOOT_NS:
        return False
    state.booted_ns = booted_ns
    # A younger beat may be of a boot that the node's bootID does not show yet.
    if uptime_s > _AHEAD_S and state.progress.until_uptime_s > uptime_s * (1 + _DRIFT) + _AHEAD_S:
        state.progress = state.progress.model_copy(update={"until_uptime_s": uptime_s})
    if state.has_unknown_past:
        state.has_unknown_past, state.history_until_s = False, uptime_s - _HISTORY_AFTER_S
    return True


def is_history(state: NodeState, event: KernelEvent) -> bool:
    """Return True for a line from before anything was known of its node, which may have been repaired since then."""
    if event.uptime_s is None:
        return event.wall is not None and nanoseconds(event.wall) <= state.history_until_ns
    return state.history_until_s is not None and event.uptime_s <= state.history_until_s


def forget_past(state: NodeState, now: datetime) -> None:
    """Note that nothing is known of the node's lines in this boot up to now."""
    state.has_unknown_past = True
    state.history_until_ns = nanoseconds(now) - int(_HISTORY_AFTER_S * 1e9)


def may_be_of_next_boot(state: NodeState, line: LogLine, event: KernelEvent) -> bool:
    """Return True if only the node's next bootID can tell whether a line is a new boot's or was shipped again."""
    if event.uptime_s is None or not _is_shipped_again(state, line, event.uptime_s):
        return False
    return line.at - timedelta(seconds=event.uptime_s) > state.last_seen_at


def ignore_reason(state: NodeState, line: LogLine, event: KernelEvent) -> str | None:
    """Return why not to act upon a line, or None. The line is recorded, so that its repetition is recognised."""
    key = line_key(line, event)
    # A line from before the return is recognised below by its stamp, even if the store has it only now.
    is_by_wall = event.wall is not None and event.uptime_s is None
    if line.ns <= max(state.handled_before_ns, state.progress.returned_ns if is_by_wall else 0):
        return "handled before"
    if state.previous_boot_seen_at and line.at < state.previous_boot_seen_at:
        return "before boot"
    if event.uptime_s is not None and _has_impossible_stamp(state, line, event.uptime_s):
        return IMPOSSIBLE_STAMP
    if key in state.recent_digests or key in state.progress.lines:
        return "repeated"
    if event.uptime_s is not None and _is_shipped_again(state, line, event.uptime_s):
        return "repeated"
    state.recent_digests[key] = None
    if len(state.recent_digests) > _MOST_RECENT_LINES:
        state.recent_digests.popitem(last=False)
    _advance(state, line, event.uptime_s)
    return None


def line_key(line: LogLine, event: KernelEvent) -> str:
    """Return the line's identity: the line itself if it has a time of its own, else together with the store's."""
    return digest(event.line if event.is_dated else f"{line.ns} {event.line}")


def _has_impossible_stamp(state: NodeState, line: LogLine, uptime_s: float) -> bool:
    """Return True for a stamp that the boot cannot have reached at the line's time: a forged one, or another boot's.

    As a mark it would make every later line count as shipped again.
    """
    if line.ns < max(state.boot_known_ns, state.booted_ns):
        return False  # it may belong to the boot before, and is not a mark
    at_least_s = uptime_s * (1 - _DRIFT) - _AHEAD_S
    return line.ns - int(at_least_s * 1e9) < state.booted_ns


def _is_shipped_again(state: NodeState, line: LogLine, uptime_s: float) -> bool:
    """Return True for a line that is newer in the store than the one with the highest stamp, but has no higher stamp.

    A line that only reached the store late is older there, too.
    """
    progress = state.progress
    if not state.view or progress.boot != state.view.boot_id or line.ns <= state.highest_stamp_ns:
        return False
    # If there were more lines than digests, missing one line is better than tainting a repaired node.
    allowed_s = DISORDER_S if len(progress.lines) < MOST_SEEN_LINES else 0.0
    return uptime_s <= progress.until_uptime_s - allowed_s


def _advance(state: NodeState, line: LogLine, uptime_s: float | None) -> None:
    boot = state.view.boot_id if state.view else ""
    # A stamp of the boot before would be a mark that this boot reaches only after days.
    is_sure = line.ns >= max(state.boot_known_ns, state.highest_stamp_ns)
    before = state.progress
    state.progress = before.advanced(boot, line.ns, uptime_s if is_sure else None)
    if is_sure and state.progress.until_uptime_s > (before.until_uptime_s if before.boot == boot else 0.0):
        state.highest_stamp_ns = line.ns


def ignore_signal_reason(state: NodeState, signal: Signal) -> str | None:
    """Return why not to act upon a signal that is not a line of the kernel log, or None."""
    returned_ns = state.progress.returned_ns
    if returned_ns and (nanoseconds(signal.at) <= returned_ns or not signal.is_begin_known):
        return "before return"
    if state.previous_boot_seen_at and signal.at < state.previous_boot_seen_at:
        return "before boot"
    return "repeated" if signal.key in state.progress.signals else None


def record(state: NodeState, signal: Signal) -> None:
    """Record a signal, however it is answered, so that seeing it again is nothing new."""
    is_line = signal.kind is SignalKind.KERNEL_LOG
    state.progress = state.progress.with_line(signal.key) if is_line else state.progress.with_signal(signal.key)


def count_sighting(state: NodeState, signal: Signal, rule: Rule) -> int:
    """Record an occurrence of a watched signal; return how many lie within the rule's window.

    Raises:
        ValueError: The rule does not watch.
    """
    if rule.watch is None:
        raise ValueError(f"rule {rule.name} does not watch")
    ns = nanoseconds(signal.at)
    earliest = ns - int(rule.watch.within.total_seconds() * 1e9)
    before = [
        sighting.ns
        for sighting in state.progress.sightings
        if (sighting.rule, sighting.gpu) == (rule.name, signal.gpu) and earliest < sighting.ns
    ]
    if before and ns - max(before) < rule.watch.apart.total_seconds() * 1e9:
        return len(before)
    state.progress = state.progress.with_sighting(Sighting(rule=rule.name, gpu=signal.gpu, ns=ns))
    return len(before) + 1


def add_fault(state: NodeState, signal: Signal, decision: PolicyDecision, now: datetime) -> bool:
    """Add a quarantining fault; return False if it is already known."""
    event = signal.event
    fault = Fault(
        kind=event.kind if event else signal.kind,
        code=event.code if event else None,
        name=_fault_name(signal, decision),
        pci=signal.gpu,
        at=signal.at,
        remedy=decision.remedy,
        why=decision.reason,
    )
    if any(fault.is_same(known) for known in state.active()) or len(state.active()) >= MOST_FAULTS:
        return False
    if not state.faults:
        state.quarantined_at = now
    remedied = [known for known in state.faults if known.remedied and not fault.is_same(known)]
    state.faults = [*state.active(), fault, *remedied][:MOST_FAULTS]
    state.unwritten_faults.append(fault)
    state.needs_write = True
    return True


def _fault_name(signal: Signal, decision: PolicyDecision) -> str:
    by_rule = decision.rule.name if decision.rule else ""
    if event := signal.event:
        return by_rule if event.kind is Kind.OTHER else event.name
    return signal.name or by_rule


def _end_faults(state: NodeState, ended: list[Fault], now: datetime) -> list[Fault]:
    if ended:
        _set_remedied(state, ended, now)
        _mark_handled(state, now)
    return ended


def _set_remedied(state: NodeState, ended: list[Fault], now: datetime) -> None:
    state.faults = [f.model_copy(update={"remedied": now}) if f in ended else f for f in state.faults]


def _drop_faults(state: NodeState, now: datetime) -> None:
    """Drop the faults of a node that has lost its taint. Unwritten ones happened after that, and stay."""
    state.faults = list(state.unwritten_faults)
    state.progress = state.progress.ended(nanoseconds(now))
    _mark_handled(state, now)


def _mark_handled(state: NodeState, now: datetime) -> None:
    """Move the progress to this moment, so that after a restart no earlier line begins the quarantine again."""
    state.progress = state.progress.model_copy(update={"until_ns": max(state.progress.until_ns, nanoseconds(now))})
    state.needs_write = True
