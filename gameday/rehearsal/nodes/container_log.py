"""A container's output: stamped lines that can be read back and followed, bounded in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from gameday.rehearsal.nodes.identity import seeded

_MOST_LINES = 20_000
_LONGEST_LINE = 16_384  # the container runtimes' own limit of one CRI log line
_TRAINING_LINE_EVERY_S = 5.0
_STEPS_PER_S = 2.4
_STEPS_PER_CHECKPOINT = 60


class Line(NamedTuple):
    at: datetime
    text: str


class ContainerLog(Protocol):
    @property
    def closed(self) -> bool: ...

    def read(self, start: int) -> tuple[list[Line], int]:
        """The lines from position `start` on, and the position after them."""

    async def grown(self) -> None:
        """Return when there may be more, or the log was closed."""


class PrintedLog:
    """A real process's output; kept in a file too, to be read after the rehearsal."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self._lines: deque[Line] = deque(maxlen=_MOST_LINES)
        self._written = 0
        self._rest = b""
        self._grown = asyncio.Event()
        self.closed = False

    def feed(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._file.flush()
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        while len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest[:_LONGEST_LINE])
            self._rest = self._rest[_LONGEST_LINE:]
        self._append(lines)

    def close(self) -> None:
        if self._rest:
            self._append([self._rest])
        self._rest = b""
        self.closed = True
        self._file.close()
        self._grown.set()

    def read(self, start: int) -> tuple[list[Line], int]:
        first = self._written - len(self._lines)
        return list(self._lines)[max(0, start - first) :], self._written

    async def grown(self) -> None:
        await self._grown.wait()

    def _append(self, lines: list[bytes]) -> None:
        now = datetime.now(UTC)
        self._lines.extend(Line(now, line.decode("utf-8", "replace")) for line in lines)
        self._written += len(lines)
        self._grown.set()
        self._grown = asyncio.Event()


class TrainingLog:
    """A simulated training's output, made up when somebody reads it: a thousand quiet nodes cost nothing."""

    def __init__(self, name: str, started: datetime, checkpoint: int = 0, first_words: tuple[str, ...] = ()) -> None:
        """Begin at `checkpoint`, a step that an earlier container had stored; `first_words` are lines before it."""
        self._started = started
        self._checkpoint = checkpoint
        self._noise = seeded(name, "loss").uniform(0.9, 1.1)
        self._first_words = first_words
        self._last_words: tuple[str, ...] = ()
        self._ended: datetime | None = None

    @property
    def closed(self) -> bool:
        return self._ended is not None

    def close(self, last_words: tuple[str, ...] = ()) -> None:
        """End the output with these lines."""
        self._last_words = last_words
        self._ended = datetime.now(UTC)

    def read(self, start: int) -> tuple[list[Line], int]:
        until = self._ended or datetime.now(UTC)
        steps = int((until - self._started).total_seconds() / _TRAINING_LINE_EVERY_S)
        end = len(self._first_words) + steps + len(self._last_words)
        start = max(start, end - _MOST_LINES)
        return [self._line(number, steps, until) for number in range(start, end)], max(start, end)

    def last_checkpoint(self) -> int:
        """Return the newest step so far that a container which takes this one's place can go on from."""
        elapsed = ((self._ended or datetime.now(UTC)) - self._started).total_seconds()
        return (self._checkpoint + int(elapsed * _STEPS_PER_S)) // _STEPS_PER_CHECKPOINT * _STEPS_PER_CHECKPOINT

    async def grown(self) -> None:
        await asyncio.sleep(0 if self.closed else 1.0)

    def _line(self, number: int, steps: int, until: datetime) -> Line:
        if number < len(self._first_words):
            return Line(self._started, self._first_words[number])
        number -= len(self._first_words)
        return self._step(number) if number < steps else Line(until, self._last_words[number - steps])

    def _step(self, number: int) -> Line:
        elapsed = (number + 1) * _TRAINING_LINE_EVERY_S
        step = self._checkpoint + int(elapsed * _STEPS_PER_S)
        loss = self._noise * (1.6 + 9.0 * (1 + step) ** -0.3)
        return Line(self._started + timedelta(seconds=elapsed), f"step {step} loss {loss:.2f}")
