"""The bases of an expectation: its keys under `expect:`, and the signals that it awaits of a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from gameday.documents.fields import DocumentModel, DocumentPart
from gameday.history.events import FaultInjected, Record, SignalUnwatched, SignSeen
from gameday.history.events.signals import DatedEvent
from gameday.history.journal import History
from gameday.values.dated import CLOCK_TOLERANCE_S, Dated
from gameday.values.nodes import NodeRole, NodeSnapshot

Path = tuple[str | int, ...]
NO_ORDER = 1000
"""The last place in the report, for an expectation or check without an `ORDER` of its own."""


@dataclass(frozen=True)
class Sighting:
    """A sighting of a signal."""

    record: Record
    at: datetime
    amiss: str = ""
    """The reason why the value is not as expected, worded for the verdict; empty if it is."""
    dated: Dated | None = None
    """The source's own date for `at`; None if only the sighting dates it."""


class Signal(DocumentModel):
    """A signal that a target must show within a bound of the fault and that may have to go again after the repair.

    `str()` of a signal names it in a line, such as `SysLogsXIDError=True`.
    """

    event: ClassVar[type[DatedEvent]]
    """The type of the history's events that show it."""
    check: ClassVar[str]
    """Id of the verdict on its coming."""
    ends_check: ClassVar[str] = ""
    """Id of the verdict on its going."""
    quarantines: ClassVar[bool] = False
    """True for a signal that takes the node out of service."""
    awaited_apart: ClassVar[bool] = False
    """True for a signal that has its own moment to wait for it (tasks/moments)."""
    watch: ClassVar[Literal["nodes", "events", "devices", "pods"]] = "nodes"
    """The objects that show the signal: the node, Events about it, its ResourceSlices, or the pods on it."""
    bounds: ClassVar[tuple[str, ...]] = ("within",)
    """Names of the fields with bounds that count from the fault going in."""
    ends_by: ClassVar[str] = ""
    """Field that is the longest time from the end of the remediation until the signal is gone; empty: not judged."""
    if TYPE_CHECKING:
        within: timedelta

    @property
    def ends_within(self) -> timedelta | None:
        """The value of the field `ends_by`; None: the end is not judged."""
        within: timedelta | None = getattr(self, self.ends_by) if self.ends_by else None
        return within

    def comes(self, node: str) -> str:
        """Return the expectation that the signal comes, as a sentence of the report."""
        raise NotImplementedError

    def ends(self, node: str) -> str:
        """Return the expectation that the signal goes, as a sentence of the report."""
        raise NotImplementedError

    def awaited(self, node: str) -> str:
        """Return the signal of a node in words, for a step that waits for it."""
        return f"{self} of {node}"

    def awaited_end(self, node: str) -> str:
        """Return the end of the signal in words, for a step that waits for it."""
        return f"{self} of {node} to go"

    def absent(self, node: str | None) -> str:
        """Return the signal in the words of a verdict on its absence."""
        return "it was seen"

    def amiss(self, seen: Any) -> str | None:
        """Return why an event is not as the plan wants it; empty if it is, None for an event about something else."""
        raise NotImplementedError

    def is_end(self, seen: Any) -> bool:
        """Return True for an event that shows that the signal is gone."""
        return False

    def seen(self, history: History, node: str | None) -> list[Sighting]:
        """Return the sightings of the signal since the fault, oldest first."""
        return since_fault(history, node, self.ever_seen(history, node))

    def ever_seen(self, history: History, node: str | None) -> list[Sighting]:
        """Return the sightings of the signal in the whole history, oldest first."""
        return [
            Sighting(record, one.at, amiss, one.dated)
            for record, one in history.about(self.event, node)
            if (amiss := self.amiss(one)) is not None
        ]

    def gone(self, history: History, node: str | None) -> list[Sighting]:
        """Return the sightings since the fault in which the signal was gone, oldest first."""
        events = history.about(self.event, node)
        found = [Sighting(record, one.at, dated=one.dated) for record, one in events if self.is_end(one)]
        return since_fault(history, node, found)

    def already(self, seen: NodeSnapshot, signs: Mapping[str, str]) -> str:
        """Return why the node shows the signal before the fault; empty if it does not.

        Args:
            seen: The node.
            signs: The signs of the pods on it, as `signs_of_pods` returns them.
        """
        return ""

    def why_unwatched(self, history: History, node: str | None) -> str:
        """Return why the run could not watch for the signal; empty if it could."""
        unwatched = (one for one in history.of(SignalUnwatched) if (one.signal, one.node) == (self.watch, node))
        return next((one.why for one in unwatched), "")

    def why_unproved(self, history: History, node: str | None) -> str:
        """Return why not seeing the signal proves nothing; empty if it proves that the signal did not come."""
        return self.why_unwatched(history, node)

    def signs_of_pods(self, pods: Sequence[Any]) -> Mapping[str, str]:
        """Return the signal's own signs on a node's pods (V1Pod): each sign's value by its place.

        A run notes each change of them as `SignSeen` with this signal's `check`.
        """
        return {}

    def sightings(self, history: History, node: str | None) -> list[Sighting]:
        """Return the sightings that are as the plan wants them, oldest first."""
        return [one for one in self.seen(history, node) if not one.amiss]

    def is_over(self, history: History, node: str | None) -> bool:
        """Return True if the signal came and has gone for good."""
        came, gone = self.sightings(history, node), self.gone(history, node)
        return bool(came and any(one.at >= came[-1].at for one in gone))


class PodSignal(Signal):
    """A signal that a target's pods show: a sign has a place and a value, and shows the signal if that is `wanted`."""

    event: ClassVar = SignSeen
    watch: ClassVar = "pods"

    @property
    def wanted(self) -> str:
        """The value with which a sign shows the signal."""
        raise NotImplementedError

    def already(self, seen: NodeSnapshot, signs: Mapping[str, str]) -> str:
        return next((f"{place} is already {value}" for place, value in signs.items() if value == self.wanted), "")

    def amiss(self, seen: SignSeen) -> str | None:
        return "" if (seen.signal, seen.value) == (self.check, self.wanted) else None

    def is_end(self, seen: SignSeen) -> bool:
        return seen.signal == self.check and seen.value != self.wanted

    def gone(self, history: History, node: str | None) -> list[Sighting]:
        """Return the sightings of another value or of a sign that went; none while any sign has the wanted value."""
        last = {one.place: one.value for _, one in history.about(SignSeen, node) if one.signal == self.check}
        return [] if self.wanted in last.values() else super().gone(history, node)


class Expectation(DocumentPart):
    """Keys under `expect:` that belong together."""

    order: ClassVar[int] = NO_ORDER
    """Place of its verdicts in the report, on the same scale as the `ORDER` of the checks."""
    needs: ClassVar[NodeRole | None] = None
    """The only role of nodes that can fulfil or break it; None: any."""

    @classmethod
    def check_plan(cls, plan: Any) -> None:
        """Refuse a Plan that these expectations do not fit: raise `conflict(path, why)`."""

    @classmethod
    def given(cls, expect: Self) -> list[str]:
        """Return the keys of this part with another value than the default."""
        return [key for key, field in cls.model_fields.items() if getattr(expect, key) != field.default]

    @classmethod
    def is_asked(cls, expect: Self) -> bool:
        """Return True if the plan asks here for something that can be broken."""
        return bool(cls.given(expect))

    @classmethod
    def signals(cls, expect: Self) -> Iterator[tuple[Path, Signal]]:
        """Yield the signals that a plan awaits here, each with its path from the plan's expectations."""
        for key in cls.model_fields:
            value = getattr(expect, key)
            if isinstance(value, Signal):
                yield (key,), value
            elif isinstance(value, tuple):
                yield from (((key, place), one) for place, one in enumerate(value) if isinstance(one, Signal))

    @classmethod
    def bounds(cls, expect: Self) -> Iterator[tuple[Path, timedelta]]:
        """Yield the bounds that count from the fault going in, each with its path from the plan's expectations."""
        for path, signal in cls.signals(expect):
            yield from (((*path, name), bound) for name in signal.bounds if (bound := getattr(signal, name)))


def since_fault(history: History, node: str | None, seen: Sequence[Sighting]) -> list[Sighting]:
    """Return the sightings that are not older than the fault, by the clock that dated the fault."""
    fault = next(iter(history.about(FaultInjected, node)), None)
    begin = fault[1].written_at - timedelta(seconds=CLOCK_TOLERANCE_S) if fault else None
    return [one for one in seen if begin and one.at >= begin]
