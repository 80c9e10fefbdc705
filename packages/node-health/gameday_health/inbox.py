"""The lines and signals that wait for the worker, with fair turns and a bound for every node and source.

Nodes take turns within each source, one line or signal a turn, so that a node that writes without end delays another
one only by a line. If too many of one node wait, repetitions of waiting ones are dropped and counted, and so are those
that would only be recorded. The newest of these is kept, because its stamp shows how far the node's log is read.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gameday.xid.decide import Response
from gameday.xid.lines import Kind
from gameday_health.detect import Detection, LineReader, NodeLine
from gameday_health.policy import Policy
from gameday_health.policy_files import kernel_signal
from gameday_health.signal import Signal, SignalKind

_MOST_OF_NODE = 1000
"""Lines of one node that wait, of any kind. Our choice: the worker handles that many within a second."""
_MOST_UNSORTED = 50_000
"""Lines of one node that wait to be sorted, 15 MB: looking at a line takes three times as long as reading it, and other
nodes' lines are behind it in the store.
"""
_SORTED_AT_A_TURN = 50
"""Lines of a node that are sorted at each of its turns: 2 ms in which no other node gets a turn."""
_MOST_ACTING = 500
"""Lines of one node beyond these, all about different things, that would be watched or end a fault; and as many again
that would quarantine it. By then the node has more than the MOST_FAULTS that are kept.
"""
_MOST_WAITING = 100_000
"""Lines and signals of all nodes, 40 MB; beyond it the sources wait."""
_RESETS = 16
"""Resets of one GPU that wait: as many as the most sightings that a rule can watch for."""
_PAUSE_S = 0.02
"""Pause before each turn of a flood while more is read, so that other nodes' lines come sooner. Our choice."""

_Own = TypeVar("_Own")


@dataclass(frozen=True, slots=True)
class Matter:
    """The effect that a line or signal would have on its node, beside being recorded."""

    about: Hashable
    """Key that is equal for two lines that say the same about the same device."""
    response: Response
    times: int = 1
    """Number of equal ones that have a meaning; more are repetitions."""
    ends_faults: bool = False


def matter_of(item: Detection | Signal, policy: Policy) -> Matter | None:
    """Return the effect of a line or signal by a policy, or None if it would only be recorded."""
    if isinstance(item, Signal):
        signal = item
    elif item.event is None or not policy.trusts(item.event):
        return None
    elif item.event.kind is Kind.GPU_RESET:
        return Matter((item.event.pci, item.event.success), Response.EVENT, _RESETS, ends_faults=True)
    else:
        signal = kernel_signal(item.event, item.node, item.line.at)
    decision = policy.decide(signal)
    if decision.rule is None or decision.response not in (Response.QUARANTINE, Response.WATCH):
        return None
    what = (signal.event.kind, signal.event.code, signal.event.name) if signal.event else signal.name
    times = decision.rule.watch.times if decision.rule.watch else 1
    return Matter((decision.rule.name, decision.remedy, what, signal.gpu), decision.response, times)


class _Backlog:
    """All waiting lines and signals of one source about one node, in order."""

    def __init__(self, policy: Policy, reader: LineReader) -> None:
        self._policy = policy
        self._reader = reader
        self._unsorted: deque[NodeLine | Signal] = deque()
        """The newest ones, not sorted yet; there may be no room for them."""
        self._waiting: deque[tuple[Detection | Signal, Hashable]] = deque()
        self._acting: Counter[Hashable] = Counter()
        """The effects among those that wait beyond `_MOST_OF_NODE`."""
        self._newest: Detection | Signal | None = None
        """The newest one that found no room; those before it were dropped."""
        self._faults_ended = 0

    def __bool__(self) -> bool:
        return bool(self._unsorted or self._waiting)

    @property
    def is_flooded(self) -> bool:
        """True while more arrive than are handled."""
        return len(self._waiting) >= _MOST_OF_NODE

    def put(self, item: NodeLine | Signal) -> int:
        """Add one that is newer than all others; return how many were dropped."""
        self._unsorted.append(item)
        return self._sort(1) if len(self._unsorted) > _MOST_UNSORTED else 0

    def take(self) -> tuple[Detection | Signal, int]:
        """Remove and return the oldest one, with the number that were dropped."""
        dropped = self._sort(_SORTED_AT_A_TURN)
        item, about = self._waiting.popleft()
        if about is not None:
            self._acting[about] -= 1
            if not self._acting[about]:
                del self._acting[about]
        if len(self._waiting) < _MOST_OF_NODE:
            self._add_newest()
        return item, dropped

    def _sort(self, count: int) -> int:
        """Sort this many of the unsorted ones: let them wait or drop them. Return how many were dropped."""
        dropped = 0
        for _ in range(min(count, len(self._unsorted))):
            newest = self._unsorted.popleft()
            # Each line is read, because a record may be shown as several lines.
            item = newest if isinstance(newest, Signal) else self._reader.read(newest)
            if len(self._waiting) < _MOST_OF_NODE:
                self._waiting.append((item, None))
                continue
            matter = matter_of(item, self._policy)
            # After a reset, the same line again is a new fault.
            about = (matter.about, self._faults_ended) if matter else None
            if matter is None or not self._has_room(matter) or self._acting[about] >= matter.times:
                dropped += self._newest is not None
                self._newest = item
                continue
            self._add_newest()
            self._waiting.append((item, about))
            self._acting[about] += 1
            self._faults_ended += matter.ends_faults
        return dropped

    def _has_room(self, matter: Matter) -> bool:
        most = 2 * _MOST_ACTING if matter.response is Response.QUARANTINE else _MOST_ACTING
        return len(self._waiting) < _MOST_OF_NODE + most

    def _add_newest(self) -> None:
        if self._newest is not None:
            self._waiting.append((self._newest, None))
            self._newest = None


class Inbox(Generic[_Own]):
    """Everything that waits for the worker. Any number of threads may put, and one gets."""

    def __init__(self, policy: Policy, on_dropped: Callable[[SignalKind, int], object]) -> None:
        """Make an empty inbox.

        Args:
            policy: Decides the effect of a line or signal.
            on_dropped: Called with a source and the number of its dropped lines or signals.
        """
        self._policy = policy
        self._reader = LineReader(policy.other_line)
        self._on_dropped = on_dropped
        self._own: deque[_Own] = deque()
        self._backlogs: OrderedDict[tuple[SignalKind, str], _Backlog] = OrderedDict()
        """Backlogs by source and node; the first one has the next turn."""
        self._count = 0
        self._is_fed = False
        """True if something was put since the last turn."""
        self._changed = threading.Condition()

    def put_own(self, item: _Own) -> None:
        """Add an item of the controller's own, such as a changed node. Those come first, in order."""
        with self._changed:
            self._own.append(item)
            self._changed.notify_all()

    def put(self, item: NodeLine | Signal, timeout_s: float) -> bool:
        """Add a line or a signal; return False if there was no room for `timeout_s`."""
        source = item.kind if isinstance(item, Signal) else SignalKind.KERNEL_LOG
        with self._changed:
            if not self._changed.wait_for(lambda: self._count < _MOST_WAITING, timeout_s):
                return False
            backlog = self._backlogs.get((source, item.node))
            if backlog is None:
                backlog = self._backlogs[source, item.node] = _Backlog(self._policy, self._reader)
            self._count += 1
            self._drop(source, backlog.put(item))
            self._is_fed = True
            if not backlog.is_flooded:
                self._changed.notify_all()
        return True

    def get(self, timeout_s: float) -> _Own | Detection | Signal | None:
        """Return the next item, or None if none comes within `timeout_s`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._own or self._backlogs, timeout_s):
                return None
            if self._is_fed:
                self._is_fed = False
                self._changed.wait_for(self._has_other_than_floods, _PAUSE_S)
            if self._own:
                return self._own.popleft()
            whose, backlog = self._backlogs.popitem(last=False)
            item, dropped = backlog.take()
            self._count -= 1
            self._drop(whose[0], dropped)
            if backlog:
                self._backlogs[whose] = backlog
            self._changed.notify_all()
        return item

    def _drop(self, source: SignalKind, count: int) -> None:
        if count:
            self._count -= count
            self._on_dropped(source, count)

    def _has_other_than_floods(self) -> bool:
        return bool(self._own) or not all(backlog.is_flooded for backlog in self._backlogs.values())
