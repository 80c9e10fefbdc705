"""Follow how a cluster repairs one target, hop by hop, and date each hop as the cluster shows it.

The watches' threads bring nodes, Events and custom resources; the run's own thread checks the time limits. Nothing here
asks the cluster, or changes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gameday.clock import Clock
from gameday.cluster.field_managers import last_writer
from gameday.cluster.nodes import GPU_RESOURCE
from gameday.documents.fields import format_duration
from gameday.history.events import Event, KubernetesEventSeen, NodeReplaced, RepairChainEnded, RepairHopSeen
from gameday.plan.models import Recovery
from gameday.plan.repair_chain import Sign
from gameday.run.node_watch import NodeListener
from gameday.run.repair_signs import (
    UNKNOWN_ACTOR,
    Mark,
    NodeLook,
    NodeState,
    event_mark,
    node_mark,
    node_state,
    resource_mark,
)
from gameday.values.nodes import GFD_TIMESTAMP_LABEL
from gameday.values.results import Hop, RepairHop, RepairKind

CORDON = "cordon"
"""The name of a quarantine that is a cordon, not a taint."""
# An Event has its writer's time but arrives later, and its second may have begun before the fault.
_CLOCK_TOLERANCE = timedelta(seconds=1)
# A hop is seen some time after it came; the verdict uses the hop's own time. Our own choice.
_LATEST_SIGHT = timedelta(seconds=2)


class RepairWatch(NodeListener):
    """The hops of one target's repair so far; each is written into the history when it is reached."""

    def __init__(
        self,
        node: Any,
        recover: Recovery,
        quarantine: Callable[[NodeState], str],
        work_has_moved: Callable[[], bool],
        note: Callable[[Event], None],
        clock: Clock = Clock(),
    ) -> None:
        """Watch nothing yet.

        Args:
            node: The target (V1Node) right before the fault.
            recover: The plan's repair.
            quarantine: Returns in words the expected taint or cordon that the node has; empty if it has none.
            work_has_moved: Returns True if all GPU pods from before the fault have left the node.
            note: Writes an event into the history; called in the watches' threads.
            clock: The run's.
        """
        self._clock = clock
        self._before = self._now = node_state(node, GPU_RESOURCE)
        self._target = self._before.name
        self._recover = recover
        self._quarantine = quarantine
        self._work_has_moved = work_has_moved
        self._note = note
        self._lock = threading.RLock()
        self._begun_at = self._clock.now()
        """Start of the watch, right before the fault: its first signs come before the injector reports its time."""
        self._fault_at: datetime | None = None
        self._gone_at: datetime | None = None
        self._successor: str | None = None
        self._tainted: set[str] = set()
        self._cordoned = False
        self._since: dict[RepairHop, datetime] = {}
        """The times since when the node's current state has shown a hop: ready, returned."""
        self._marks: dict[RepairHop, list[Mark]] = {}
        self._awaited = [hop for hop, _ in recover.hops.expected()]
        self._reached: dict[RepairHop, RepairHopSeen] = {}
        self._missed: dict[RepairHop, datetime] = {}
        """Hops that did not come although the chain went on, with the end of their time limits."""
        self._ended: RepairChainEnded | None = None
        self._date_states(self._before, self._clock.now())

    def begin(self, fault_at: datetime) -> None:
        """Count from this moment, when the fault went in by the node's clock."""
        with self._lock:
            self._fault_at = fault_at
            self._advance()

    @property
    def ended(self) -> RepairChainEnded | None:
        """The end of the wait; None while hops are awaited."""
        with self._lock:
            return self._ended

    @property
    def has_begun(self) -> bool:
        """True once there is a sign that the cluster repairs the node, or has repaired it."""
        with self._lock:
            shown = self._marks.get(RepairHop.REPAIR_BEGUN) or self._marks.get(RepairHop.REPAIRED)
            return bool(shown) or self._gone_at is not None

    @property
    def name(self) -> str:
        """The name of the node that is now in the target's place: the target itself, or its successor."""
        with self._lock:
            return self._successor or self._target

    @property
    def is_replaced(self) -> bool:
        """True once another machine is in the target's place."""
        with self._lock:
            return self._successor is not None

    @property
    def awaits_successor(self) -> bool:
        """True while the target's node object is gone and no other node has taken its place."""
        with self._lock:
            return self._gone_at is not None and self._successor is None

    @property
    def boot_when_ready(self) -> str:
        """The boot id of the target itself while it is Ready with its GPUs; empty otherwise."""
        with self._lock:
            here = self._successor is None and self._gone_at is None
            return self._now.boot_id if here and self._is_ready(self._now) else ""

    @property
    def waits_for(self) -> str:
        """The next hop in words; empty if none is awaited."""
        with self._lock:
            return self._awaited[0] if self._awaited and not self._ended else ""

    @property
    def longest(self) -> timedelta:
        """The longest time until the chain must have ended."""
        with self._lock:
            left = sum(
                (expected.within for hop in self._awaited if (expected := self._recover.hops.of(hop))), timedelta()
            )
            return self._last()[0] + left + _LATEST_SIGHT - self._clock.now()

    def on_node(self, name: str, node: Any | None) -> None:
        with self._lock:
            if name != self.name:
                return
            if node is None:
                self._gone_at = self._gone_at or self._clock.now()
                self._since.clear()
            else:
                self._see_node(node_state(node, GPU_RESOURCE))
            self._advance()

    def on_event(self, seen: KubernetesEventSeen) -> None:
        with self._lock:
            if seen.node not in (self._target, self._successor) or not self._is_since_fault(seen.at):
                return
            self._add_signs(lambda sign: event_mark(sign, seen))

    def on_resource(self, resource: Mapping[str, Any]) -> None:
        """Handle a custom resource (plain JSON) that was created or changed since the watch began."""
        with self._lock:
            names = {self._target, self._successor or self._target}
            self._add_signs(lambda sign: resource_mark(sign, resource, names, self._clock.now()))

    def take_successor(self, node: Any, pool: dict[str, str]) -> None:
        """Continue with the node (V1Node) that has taken the target's place."""
        with self._lock:
            state = node_state(node, GPU_RESOURCE)
            self._replace(state, pool)
            self._see_node(state)
            self._advance()

    def look(self) -> None:
        """Check the time and the pods: reach the hops that they show, and end the chain if a time limit is over."""
        with self._lock:
            self._advance()
            if self._ended or self._fault_at is None or not self._awaited:
                return
            hop, (last_at, _) = self._awaited[0], self._last()
            expected = self._recover.hops.of(hop)
            assert expected is not None
            if self._clock.now() < last_at + expected.within + _LATEST_SIGHT:
                return
            if hop is RepairHop.RETURNED and self._must_stay_out:
                is_in_service = hop in self._since
                self._end(hop if is_in_service else None, "the node is in service" if is_in_service else "")
            elif hop is RepairHop.WORK_MOVED and self._awaited[1:]:
                self._miss(hop, last_at + expected.within)
            else:
                self._end(hop, f"not within {format_duration(expected.within)}{self._instead(hop)}")

    def _miss(self, hop: RepairHop, at: datetime) -> None:
        """Continue without a hop: work that stays on the node does not stop the cluster from repairing it."""
        self._awaited.remove(hop)
        self._missed[hop] = at
        self._advance()

    def end(self, why: str) -> None:
        """Stop waiting because the run ends or cannot go on, unless the chain has ended."""
        with self._lock:
            if not self._ended and self._awaited:
                self._end(self._awaited[0], why)

    @property
    def _must_stay_out(self) -> bool:
        return not self._recover.gives_node_back

    def _is_since_fault(self, at: datetime) -> bool:
        return at >= (self._fault_at or self._begun_at) - _CLOCK_TOLERANCE

    def _is_ready(self, now: NodeState) -> bool:
        return now.ready and now.gpus == self._before.gpus

    def _see_node(self, now: NodeState) -> None:
        """Take the node's newest state, and keep every mark that it shows for the first time."""
        at, before = self._clock.now(), self._before
        if self._gone_at and self._successor is None and now.name == self._target:
            if now.machine and now.machine == before.machine:
                self._gone_at = None  # the same machine registered again
            else:
                self._replace(now, {})
        self._now = now
        self._tainted |= now.taint_keys
        self._cordoned |= now.cordoned
        if quarantine := self._quarantine(now):
            field = "f:unschedulable" if quarantine == CORDON else "f:taints"
            by = last_writer(now.managed_fields, "f:spec", field) or UNKNOWN_ACTOR
            self._add(RepairHop.QUARANTINED, Mark(at, by, f"watch of the node: {quarantine}"))
        if now.boot_id and now.boot_id != before.boot_id and not self._successor:
            what = f"boot id {before.boot_id or 'none'} -> {now.boot_id}"
            self._add(RepairHop.REPAIRED, Mark(at, UNKNOWN_ACTOR, f"watch of the node: {what}", RepairKind.REBOOT))
        self._date_states(now, at)
        look = NodeLook(before, now, frozenset(self._tainted), self._cordoned, at)
        self._add_signs(lambda sign: node_mark(sign, look))

    def _date_states(self, now: NodeState, at: datetime) -> None:
        """Remember since when the node has been Ready, and since when it has been in service."""
        before = self._before
        in_service = now.ready and not (now.taints - before.taints) and now.cordoned is before.cordoned
        for hop, is_so in ((RepairHop.READY, self._is_ready(now)), (RepairHop.RETURNED, in_service)):
            if not is_so:
                self._since.pop(hop, None)
            else:
                self._since.setdefault(hop, at)

    def _replace(self, now: NodeState, pool: dict[str, str]) -> None:
        self._successor, self._gone_at = now.name, self._gone_at or self._clock.now()
        at = self._clock.now()
        self._note(NodeReplaced(node=self._target, successor=now.name, pool=pool, boot_id=now.boot_id, at=at))
        source = f"watch of the pool: {now.name} in place of {self._target}"
        signs = [sign for hop in self._awaited if (found := self._recover.hops.of(hop)) for sign in found.signs]
        by = next((sign.by for sign in signs if sign.new_node and sign.by), UNKNOWN_ACTOR)
        self._add(RepairHop.REPAIRED, Mark(at, by, source, RepairKind.REPLACEMENT))

    def _add_signs(self, mark_of: Callable[[Sign], Mark | None]) -> None:
        """Keep the mark of every sign that is seen for the first time, and continue if that reaches a hop."""
        for hop, expected in self._recover.hops.expected():
            for sign in expected.signs:
                if (mark := mark_of(sign)) is not None:
                    self._add(hop, mark)
        self._advance()

    def _add(self, hop: RepairHop, mark: Mark) -> None:
        kept = self._marks.setdefault(hop, [])
        if any((one.source, one.kind) == (mark.source, mark.kind) for one in kept):
            return
        kept.append(mark)
        seen = self._reached.get(hop)
        same_kind = seen is not None and (seen.repair is None or mark.kind in (None, seen.repair))
        if seen and seen.by == UNKNOWN_ACTOR and mark.by != UNKNOWN_ACTOR and same_kind:
            self._reached[hop] = seen.model_copy(update={"by": mark.by, "source": f"{seen.source}; {mark.source}"})
            self._note(self._reached[hop])

    def _advance(self) -> None:
        """Reach every hop that the cluster shows, in order."""
        while self._fault_at is not None and not self._ended and self._awaited:
            hop = self._awaited[0]
            mark = self._shown(hop)
            if mark is None:
                return
            if hop is RepairHop.RETURNED and self._must_stay_out:
                self._reach(hop, mark)
                self._end(hop, "the cluster gave the node back, and it had to stay out of service")
                return
            self._reach(hop, mark)
            self._awaited.pop(0)
            if not self._awaited:
                self._end(None)

    def _shown(self, hop: RepairHop) -> Mark | None:
        """Return the mark that shows the hop; None if the cluster does not show it yet."""
        marks = self._marks.get(hop, [])
        named = next((mark.by for mark in marks if mark.by != UNKNOWN_ACTOR), UNKNOWN_ACTOR)
        if hop is RepairHop.WORK_MOVED:
            moved = self._gone_at is not None or self._work_has_moved()
            return Mark(self._clock.now(), named, "watch of the pods") if moved else None
        if hop in (RepairHop.READY, RepairHop.RETURNED):
            since = self._since.get(hop)
            if since and hop is RepairHop.RETURNED and self._must_stay_out and since <= self._last()[0]:
                return None  # it has not gone out of service yet: the end of the window judges that
            if since and named == UNKNOWN_ACTOR and hop is RepairHop.READY:
                path = ("f:status", "f:conditions", 'k:{"type":"Ready"}', "f:status")
                named = last_writer(self._now.managed_fields, *path) or UNKNOWN_ACTOR
            return Mark(since, named, "watch of the node") if since else None
        if hop is RepairHop.REPAIR_BEGUN:
            # A finished repair must have begun.
            marks = marks or [replace(mark, kind=None) for mark in self._marks.get(RepairHop.REPAIRED, [])]
        if hop is RepairHop.REPAIRED and (repaired := self._recover.hops.repaired) and repaired.kinds:
            marks = [mark for mark in marks if mark.kind in repaired.kinds]
        first = min(marks, key=lambda mark: mark.at, default=None)
        return replace(first, by=named) if first and first.by == UNKNOWN_ACTOR else first

    def _instead(self, hop: RepairHop) -> str:
        """Return in words what came in place of the hop; empty if nothing did."""
        others = {str(mark.kind) for mark in self._marks.get(hop, []) if mark.kind}
        return f"; {', '.join(sorted(others))} came, which the plan does not count" if others else ""

    def _last(self) -> tuple[datetime, str]:
        """Return the time and the name of the hop before the awaited one, or the time when it had to come."""
        at, name = self._fault_at or self._clock.now(), str(Hop.WRITTEN)
        if self._reached:
            newest = list(self._reached.values())[-1]
            at, name = newest.at, str(newest.hop)
        over = max(self._missed.items(), key=lambda missed: missed[1], default=None)
        return (over[1], f"the bound of {over[0]}") if over and over[1] > at else (at, name)

    def _reach(self, hop: RepairHop, mark: Mark) -> None:
        last_at, since = self._last()
        at = max(mark.at, last_at)
        self._reached[hop] = RepairHopSeen(
            hop=hop,
            node=self._target,
            at=at,
            by=mark.by,
            source=mark.source,
            took_s=(at - last_at).total_seconds(),
            since=since,
            repair=mark.kind if hop is RepairHop.REPAIRED else None,
        )
        self._note(self._reached[hop])

    def _end(self, stopped_at: RepairHop | None, why: str = "") -> None:
        in_service = self._gone_at is None or self._successor is not None
        self._ended = RepairChainEnded(
            node=self._target,
            stopped_at=stopped_at,
            why=why,
            missed=tuple(self._missed),
            left=tuple(self._left()),
            in_service=in_service and RepairHop.RETURNED in self._since,
        )
        self._note(self._ended)

    def _left(self) -> list[str]:
        """Return the taints, cordon and labels that the node has now but did not have before the fault."""
        if self._gone_at and not self._successor:
            return [f"no node: {self._target} is gone, and no other node took its place"]
        now, before = self._now, self._before
        taints = [f"taint {key}={value}:{effect}" for key, value, effect in sorted(now.taints - before.taints)]
        cordon = ["cordon"] if now.cordoned and not before.cordoned else []
        labels = {} if self._successor else dict(now.labels.items() - before.labels.items())
        labels.pop(GFD_TIMESTAMP_LABEL, None)
        return taints + cordon + [f"label {key}={value}" for key, value in sorted(labels.items())]
