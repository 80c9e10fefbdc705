"""Write a history so that a killed process loses at most the event that it was writing, and read it back."""

from __future__ import annotations

import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from gameday.clock import Clock
from gameday.history.durable import DurableLines
from gameday.history.events import RECORD, Event, Record, RunEnded
from gameday.history.other_events import UnknownEvent, read_record
from gameday.history.written_now import is_written_now, mark_as_written
from gameday.plain_file import NO_PLACE, open_plain

E = TypeVar("E")


@dataclass(frozen=True)
class History:
    """A finished (or cut-off) run's records, in the order they were written.

    `damaged` counts lines that could not be decoded, for example the torn last line of a killed run or an edited line.
    They are skipped.
    """

    records: tuple[Record, ...]
    damaged: int = 0
    is_written: bool = False
    """True if a living process had the file open for writing when it was read."""

    @property
    def is_running(self) -> bool:
        """True for a run that had neither ended nor died when its history was read."""
        return self.is_written and self.last(RunEnded) is None

    @cached_property
    def unknown_kinds(self) -> tuple[str, ...]:
        """The kinds of events that no installed package defines, sorted."""
        return tuple(sorted({event.kind for event in self.of(UnknownEvent)}))

    @cached_property
    def _by_kind(self) -> dict[type, list[tuple[Record, Any]]]:
        """Group the records by kind: checks ask for kinds once per node, and a run of 500 nodes has 50,000 records."""
        groups: dict[type, list[tuple[Record, Any]]] = defaultdict(list)
        for record in self.records:
            groups[type(record.event)].append((record, record.event))
        return dict(groups)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one model class, oldest first."""
        return [event for _, event in self._by_kind.get(kind, ())]

    def with_times(self, kind: type[E]) -> Iterator[tuple[Record, E]]:
        return iter(self._by_kind.get(kind, ()))

    @cached_property
    def _by_node(self) -> dict[type, dict[str | None, list[tuple[Record, Any]]]]:
        """The events by node, for the kinds that were asked for."""
        return {}

    def about(self, kind: type[E], node: str | None) -> list[tuple[Record, E]]:
        """Return one model class's events about one node, with their records, oldest first; None: about no node."""
        if kind not in self._by_node:
            groups: dict[str | None, list[tuple[Record, Any]]] = defaultdict(list)
            node_of = _node_of(kind)
            for seen in self._by_kind.get(kind, ()):
                groups[node_of(seen[1])].append(seen)
            self._by_node[kind] = dict(groups)
        return self._by_node[kind].get(node, [])

    @cached_property
    def clock_set_by_s(self) -> float:
        """Seconds by which a writer's wall clock was set while it wrote: the difference between its two clocks."""
        apart: dict[str, list[float]] = defaultdict(list)
        for record in self.records:
            apart[record.boot].append(record.at.timestamp() - record.monotonic)
        return max((max(one) - min(one) for one in apart.values()), default=0.0)

    def first(self, kind: type[E]) -> E | None:
        return next(iter(self.of(kind)), None)

    def last(self, kind: type[E]) -> E | None:
        return next(reversed(self.of(kind)), None)


def _node_of(kind: Any) -> Callable[[Any], str | None]:
    """Return a function that reads the node of such an event; some have it in their target or snapshot."""
    place = next((field for field in ("target", "snapshot") if field in kind.model_fields), None)
    return attrgetter(f"{place}.node" if place else "node")


def read_history(path: Path) -> History:
    """Read history.jsonl. Raises FileNotFoundError; damaged lines are counted and do not raise."""
    with open_plain(path) as lines:
        records, damaged = _decoded(lines)
    return History(tuple(records), damaged, is_written_now(path))


def _decoded(lines: Iterable[bytes]) -> tuple[list[Record], int]:
    """Return the records of a history's lines, and the number of damaged ones."""
    records: list[Record] = []
    damaged = 0
    decode = RECORD.validator.validate_json  # without the wrapper RECORD.validate_json, which costs a tenth
    for line in lines:
        if line.isspace():
            continue
        try:
            records.append(decode(line))
        except ValidationError:
            try:
                records.append(read_record(line))
            except ValueError:
                damaged += 1
    return records, damaged


class Journal:
    """The writing end. Thread-safe; every event is on the disk before `append` returns.

    A full disk must not prevent an undo: an event that cannot be written is kept in memory, and `failed` holds the
    first error, so that the run can act on it.
    """

    def __init__(self, path: Path, clock: Clock = Clock(), reserve_bytes: int = 0) -> None:
        """Open the history. Raises OSError, also if the reserve for its end does not fit."""
        self.path = path
        self._clock = clock
        self._boot = uuid.uuid4().hex[:12]
        self._lock = threading.RLock()
        self._records: list[Record] = list(read_history(path).records) if path.exists() else []
        self._lines = DurableLines(path, reserve_bytes)
        self._mark = mark_as_written(path)

    def append(self, event: Event) -> Record:
        with self._lock:
            record = Record(
                seq=len(self._records),
                at=self._clock.now(),
                monotonic=self._clock.monotonic(),
                boot=self._boot,
                event=event,
            )
            self._records.append(record)
            self._lines.add(RECORD.dump_json(record) + b"\n")
            return record

    @property
    def failed(self) -> OSError | None:
        """The first error of a write; None if there was none."""
        return self._lines.failed

    @property
    def is_whole(self) -> bool:
        """True if every event is on the disk by now."""
        return self._lines.is_whole

    def history(self) -> History:
        with self._lock:
            return History(tuple(self._records))

    def release_reserve(self) -> None:
        """Free the reserved room for other writers."""
        self._lines.release_reserve()

    def close(self) -> None:
        """Close the file. Idempotent; later events are not written."""
        self._mark.close()
        self._lines.close()


class HistoryTail:
    """A history that is still being written; every call reads on. Damaged lines are skipped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def added(self) -> list[Record]:
        """Return the whole lines added since the last call; empty if there is no file, or its disk fails.

        Raises OSError if it is a link.
        """
        try:
            with open_plain(self._path) as file:
                file.seek(self._offset)
                added = file.read()
        except OSError as error:
            if error.errno in NO_PLACE or isinstance(error, FileNotFoundError):
                return []
            raise
        whole = added[: added.rfind(b"\n") + 1]
        self._offset += len(whole)
        return _decoded(whole.splitlines())[0]
