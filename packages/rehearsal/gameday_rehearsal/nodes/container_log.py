"""A container's output: stamped lines, readable and followable, bounded in memory."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from gameday_rehearsal.nodes.identity import seeded

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
        """Return the lines from position `start` on, and the position after them."""

    async def grown(self) -> None:
        """Return when there may be more lines, or when the log was closed."""


class PrintedLog:
    """The output of a real process, kept in a file, too, for reading after the rehearsal."""

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


Worked = Callable[[], tuple[float, Sequence[float]]]
"""A reading of the model's time, and the seconds at full pace that each GPU of a container had worked by then."""


class _Pace:
    """The pace of a training in which GPUs wait for each other after every step: that of the slowest.

    It is known only at readings, and assumed even between two of them.
    """

    def __init__(self) -> None:
        self._parts = [(0.0, 0.0, 1.0)]  # from when on, the work done by then, the pace from then on; in seconds
        self._read = 0.0
        self._worked: Worked | None = None
        self._before: tuple[float, Sequence[float]] = (0.0, ())

    def follow(self, worked: Worked) -> None:
        self._worked, self._before = worked, worked()

    def look(self, elapsed: float) -> None:
        """Note the pace between the last reading and this one, `elapsed` seconds after the training's start."""
        if self._worked is None:
            return
        now = self._worked()
        passed = now[0] - self._before[0]
        if passed > 0 and elapsed > self._read:
            done = [after - before for after, before in zip(now[1], self._before[1], strict=True)]
            pace = round(min(done, default=passed) / passed, 2)
            if pace != self._parts[-1][2]:
                self._parts.append((self._read, self.done(self._read), pace))
            self._read, self._before = elapsed, now

    def done(self, elapsed: float) -> float:
        """Return the seconds at full pace that were worked by then."""
        since, work, pace = self._parts[bisect_right(self._parts, elapsed, key=lambda part: part[0]) - 1]
        return work + pace * (elapsed - since)


class TrainingLog:
    """The output of a simulated training, generated when somebody reads it: a thousand quiet nodes cost nothing."""

    def __init__(self, name: str, started: datetime, checkpoint: int = 0, first_words: tuple[str, ...] = ()) -> None:
        """Begin at `checkpoint`, a step that an earlier container had stored; `first_words` are lines before it."""
        self._started = started
        self._pace = _Pace()
        self._checkpoint = checkpoint
        self._noise = seeded(name, "loss").uniform(0.9, 1.1)
        self._first_words = first_words
        self._last_words: tuple[str, ...] = ()
        self._ended: datetime | None = None

    @property
    def closed(self) -> bool:
        return self._ended is not None

    def compute_on(self, worked: Worked) -> None:
        """Work at the pace of these GPUs from now on."""
        self._pace.follow(worked)

    def close(self, last_words: tuple[str, ...] = ()) -> None:
        """End the output with these lines."""
        self._last_words = last_words
        self._elapsed()
        self._ended = datetime.now(UTC)

    def _elapsed(self) -> float:
        """Return the seconds from the start to now or the end, and note the pace until then."""
        elapsed = ((self._ended or datetime.now(UTC)) - self._started).total_seconds()
        if self._ended is None:
            self._pace.look(elapsed)
        return elapsed

    def read(self, start: int) -> tuple[list[Line], int]:
        elapsed = self._elapsed()
        until = self._started + timedelta(seconds=elapsed)
        steps = int(elapsed / _TRAINING_LINE_EVERY_S)
        end = len(self._first_words) + steps + len(self._last_words)
        start = max(start, end - _MOST_LINES)
        return [self._line(number, steps, until) for number in range(start, end)], max(start, end)

    def last_checkpoint(self) -> int:
        """Return the newest step from which a replacement of this container can continue."""
        return self._step_at(self._elapsed()) // _STEPS_PER_CHECKPOINT * _STEPS_PER_CHECKPOINT

    async def grown(self) -> None:
        await asyncio.sleep(0 if self.closed else 1.0)

    def _line(self, number: int, steps: int, until: datetime) -> Line:
        if number < len(self._first_words):
            return Line(self._started, self._first_words[number])
        number -= len(self._first_words)
        return self._step(number) if number < steps else Line(until, self._last_words[number - steps])

    def _step(self, number: int) -> Line:
        elapsed = (number + 1) * _TRAINING_LINE_EVERY_S
        step = self._step_at(elapsed)
        loss = self._noise * (1.6 + 9.0 * (1 + step) ** -0.3)
        return Line(self._started + timedelta(seconds=elapsed), f"step {step} loss {loss:.2f}")

    def _step_at(self, elapsed: float) -> int:
        return self._checkpoint + int(self._pace.done(elapsed) * _STEPS_PER_S)
