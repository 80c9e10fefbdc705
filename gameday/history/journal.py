"""Write a history so that a killed process loses at most the event it was writing, and read it back."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from gameday.history.events import RECORD, Event, Record

E = TypeVar("E")


@dataclass(frozen=True)
class History:
    """A finished (or cut-off) run's records, in the order they were written.

    `damaged` counts lines that could not be decoded: a torn last line of a
    killed run, or a file somebody edited. They are skipped, never guessed at.
    """

    records: tuple[Record, ...]
    damaged: int = 0

    def of(self, kind: type[E]) -> list[E]:
        """Events of one model class, oldest first."""
        return [record.event for record in self.records if isinstance(record.event, kind)]

    def with_times(self, kind: type[E]) -> Iterator[tuple[Record, E]]:
        for record in self.records:
            if isinstance(record.event, kind):
                yield record, record.event

    def first(self, kind: type[E]) -> E | None:
        return next(iter(self.of(kind)), None)

    def last(self, kind: type[E]) -> E | None:
        return next(reversed(self.of(kind)), None)


def read_history(path: Path) -> History:
    """Read history.jsonl; raises FileNotFoundError, and nothing for what stands in it."""
    records: list[Record] = []
    damaged = 0
    with path.open("rb") as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                records.append(RECORD.validate_json(line))
            except ValidationError:
                damaged += 1
    return History(tuple(records), damaged)


class Journal:
    """The writing end. Thread-safe; every event is fsynced before `append` returns.

    A disk that is full must not cost an undo: an event that cannot be written
    is kept in memory, and `failed` holds the first error for the run to act on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._boot = uuid.uuid4().hex[:12]
        self._lock = threading.RLock()
        self._records: list[Record] = list(read_history(path).records) if path.exists() else []
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        self._file = path.open("ab", buffering=0)
        if torn:  # the next record must not be glued to what a killed process left
            self._file.write(b"\n")
        self.failed: OSError | None = None

    def append(self, event: Event) -> Record:
        with self._lock:
            record = Record(
                seq=len(self._records),
                at=datetime.now(UTC),
                monotonic=time.monotonic(),
                boot=self._boot,
                event=event,
            )
            self._records.append(record)
            try:
                self._file.write(RECORD.dump_json(record) + b"\n")
                os.fsync(self._file.fileno())
            except OSError as error:
                self.failed = self.failed or error
            return record

    def history(self) -> History:
        with self._lock:
            return History(tuple(self._records))

    def close(self) -> None:
        """Safe to call again; what came after a failed write is not written."""
        self._file.close()
