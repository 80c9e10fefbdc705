"""Streams of log lines in memory, bounded, with an append-only copy on disk."""

from __future__ import annotations

import heapq
import json
import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from gameday.errors import TooManyStreamsError
from gameday_rehearsal.logstore.logql import Matcher, Query

log = logging.getLogger(__name__)

MOST_STREAMS = 20_000
# Rough cost of an entry beside its text: the tuple, two ints, a string header.
_ENTRY_OVERHEAD = 200

Labels = frozenset[tuple[str, str]]


class Entry(NamedTuple):
    """A line, ordered by time; `metadata` is Loki's structured metadata."""

    ns: int
    line: str
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        return len(self.line) + _ENTRY_OVERHEAD + sum(len(key) + len(value) for key, value in self.metadata)


class Found(NamedTuple):
    ns: int
    labels: tuple[tuple[str, str], ...]
    """The labels of stream and entry, sorted, as Loki's query API shows them."""
    line: str


@dataclass
class _Stream:
    labels: dict[str, str]
    entries: list[Entry] = field(default_factory=list)

    def between(self, start: int, end: int) -> tuple[int, int]:
        return bisect_left(self.entries, (start,)), bisect_left(self.entries, (end,))


class Store:
    """At most `most_bytes` of entries, with the oldest dropped first; on disk at most about three times that.

    A push is written and flushed to the file before it counts as accepted. So a killed store loses nothing that it
    acknowledged; a crashed machine may, because there is no fsync.
    """

    def __init__(self, folder: Path | None, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._streams: dict[Labels, _Stream] = {}
        self._bytes = 0
        self._listeners: list[Callable[[dict[str, str], list[Entry]], None]] = []
        self._folder = folder
        self._file: IO[str] | None = None
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            self._load(folder)
            self._file = (folder / "current.jsonl").open("a", encoding="utf-8")
            if self._file.tell() and not (folder / "current.jsonl").read_bytes().endswith(b"\n"):
                self._file.write("\n")  # a line torn by a kill must not swallow the next one

    def close(self) -> None:
        if self._file:
            self._file.close()

    def listen(self, listener: Callable[[dict[str, str], list[Entry]], None]) -> Callable[[], None]:
        """Call `listener` with every new entry and its stream; return a function that stops this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def push(self, streams: list[tuple[dict[str, str], list[Entry]]]) -> None:
        """Accept all of it. An entry that exists already (same stream, time, line and metadata) is not stored twice.

        Raises TooManyStreamsError and OSError, both before anything is accepted.
        """
        new = {frozenset(labels.items()) for labels, _ in streams} - self._streams.keys()
        if len(self._streams) + len(new) > MOST_STREAMS:
            raise TooManyStreamsError
        self._write(streams)
        for labels, entries in streams:
            added = self._add(labels, entries)
            for listener in list(self._listeners):
                listener(labels, added)
        self._evict()

    def query(self, query: Query, start: int, end: int, limit: int, *, forward: bool) -> list[Found]:
        """Return entries with start <= ns < end, the first `limit` of them in the asked direction."""
        runs = [
            self._run(stream, query, start, end, forward=forward)
            for stream in self._streams.values()
            if query.selects(stream.labels)
        ]
        merged = heapq.merge(*runs, key=lambda found: found.ns, reverse=not forward)
        return [found for found, _ in zip(merged, range(limit), strict=False)]

    def streams(self, selector: tuple[Matcher, ...] = ()) -> list[dict[str, str]]:
        return [
            dict(stream.labels)
            for stream in self._streams.values()
            if all(matcher.matches(stream.labels) for matcher in selector)
        ]

    def _run(self, stream: _Stream, query: Query, start: int, end: int, *, forward: bool) -> Iterator[Found]:
        first, last = stream.between(start, end)
        for at in range(first, last) if forward else range(last - 1, first - 1, -1):
            if found := keep(query, stream.labels, stream.entries[at]):
                yield found

    def _add(self, labels: dict[str, str], entries: list[Entry]) -> list[Entry]:
        stream = self._streams.setdefault(frozenset(labels.items()), _Stream(labels))
        added = []
        for entry in entries:
            at = bisect_left(stream.entries, entry)
            if at < len(stream.entries) and stream.entries[at] == entry:
                continue
            insort(stream.entries, entry, lo=at)
            self._bytes += entry.size
            added.append(entry)
        return added

    def _evict(self) -> None:
        """Drop the oldest entries of all streams, down to nine tenths, so that this is not needed at every push."""
        if self._bytes <= self._most_bytes:
            return
        oldest = heapq.merge(
            *([(entry.ns, key, entry.size) for entry in stream.entries] for key, stream in self._streams.items()),
            key=lambda item: item[0],
        )
        dropped: dict[Labels, int] = {}
        for _, key, size in oldest:
            if self._bytes <= self._most_bytes * 9 // 10:
                break
            self._bytes -= size
            dropped[key] = dropped.get(key, 0) + 1
        for key, count in dropped.items():
            del self._streams[key].entries[:count]
            if not self._streams[key].entries:
                del self._streams[key]

    def _write(self, streams: list[tuple[dict[str, str], list[Entry]]]) -> None:
        if self._file is None or self._folder is None:
            return
        if self._file.tell() > self._most_bytes:
            self._file.close()
            (self._folder / "current.jsonl").replace(self._folder / "previous.jsonl")
            self._file = (self._folder / "current.jsonl").open("a", encoding="utf-8")
        self._file.write(
            "".join(json.dumps({"labels": labels, "entries": entries}) + "\n" for labels, entries in streams)
        )
        self._file.flush()

    def _load(self, folder: Path) -> None:
        for name in ("previous.jsonl", "current.jsonl"):
            path = folder / name
            if not path.exists():
                continue
            with path.open(encoding="utf-8") as file:
                for text in file:
                    if read := _read(text):
                        self._add(*read)
            self._evict()


def keep(query: Query, stream: Mapping[str, str], entry: Entry) -> Found | None:
    """Return the entry as a query shows it, or None if the query excludes it. The stream is already selected."""
    labels = {**stream, **dict(entry.metadata)} if entry.metadata else stream
    if not query.keeps(entry.line, labels):
        return None
    return Found(entry.ns, tuple(sorted(labels.items())), entry.line)


def _read(text: str) -> tuple[dict[str, str], list[Entry]] | None:
    try:
        record: dict[str, Any] = json.loads(text)
        entries = [
            Entry(ns, line, tuple((key, value) for key, value in metadata)) for ns, line, metadata in record["entries"]
        ]
    except (ValueError, KeyError, TypeError):
        if text.strip():
            log.warning("skipped a torn line of the log store's file")
        return None
    return record["labels"], entries
