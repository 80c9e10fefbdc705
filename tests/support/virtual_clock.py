"""A clock whose time passes only while somebody waits, and then at once: one thread, no real pause, no race."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from gameday.clock import Clock, Repetition

# Looks in quick succession that find nothing new are not played at each of their turns, but at least this often, in
# virtual seconds: ten minutes have thousands of them.
COARSE_S = 5.0
# Repetitions with a shorter pause are such looks. Every turn of the others counts: a probe's answer, a lease's renewal.
_LOOKS_WITHIN_S = 0.5


@dataclass(order=True)
class _Due:
    at: float
    order: int
    act: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)


class VirtualClock(Clock):
    """Time as a list of things that will happen. Waiting plays those that are due, in order, in the waiting thread.

    `at` and `after` add what happens; the run's own repetitions (lease, guardrails) are played among it. Wall time may
    be set off from monotonic time by `jump`.

    What is played may wait, too. Whoever waited for it then waits longer than asked, as only one thing goes on at a
    time: a server that is slow to answer a guardrail's look holds up the run.
    """

    def __init__(self, start: datetime = datetime(2026, 3, 3, 9, 0, tzinfo=UTC), coarse_s: float = COARSE_S) -> None:
        """Begin at `start`; `coarse_s` is the longest time without a look, in virtual seconds."""
        self.coarse_s = coarse_s
        self._start = start
        self._elapsed = 0.0
        self._wall_offset = timedelta()
        self._order = itertools.count()
        self._due: list[_Due] = []
        self._repetitions: list[_Turns] = []
        self.happened = 0
        """How many of the things of `at` and `after` have happened."""

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed) + self._wall_offset

    def monotonic(self) -> float:
        return self._elapsed

    def boottime(self) -> float:
        return self._elapsed

    def jump(self, by: timedelta) -> None:
        """Set the wall clock off by so much more; durations do not notice."""
        self._wall_offset += by

    def at(self, seconds: float, act: Callable[[], None]) -> Callable[[], None]:
        """Let something happen at a second of monotonic time; return a function that calls it off."""
        due = _Due(max(seconds, self._elapsed), next(self._order), act)
        heapq.heappush(self._due, due)

        def cancel() -> None:
            due.cancelled = True

        return cancel

    def after(self, seconds: float, act: Callable[[], None]) -> Callable[[], None]:
        """Let something happen so many seconds from now; return a function that calls it off."""
        return self.at(self._elapsed + seconds, act)

    def sleep(self, seconds: float) -> None:
        self._pass(self._elapsed + seconds, lambda: False)

    def freeze(self, seconds: float) -> None:
        """Let time pass as for a process that is suspended: none of its repetitions gets a turn."""
        suspended, self._repetitions = self._repetitions, []
        try:
            self.sleep(seconds)
        finally:
            self._repetitions = [*suspended, *self._repetitions]

    def wait_set(self, event: threading.Event, timeout_s: float) -> bool:
        self._pass(self._elapsed + timeout_s, event.is_set)
        return event.is_set()

    def wait_changed(
        self,
        changed: threading.Condition,
        condition: Callable[[], bool],
        timeout_s: float,
        check_every_s: float | None = None,
    ) -> bool:
        deadline, held = self._elapsed + timeout_s, False

        def holds() -> bool:
            nonlocal held
            with changed:
                held = held or condition()
            return held

        while not holds() and (left := deadline - self._elapsed) > 0:
            self._pass(self._elapsed + (left if check_every_s is None else self.pause(check_every_s, left)), holds)
        return held

    def pause(self, every_s: float, left_s: float) -> float:
        """Return the seconds up to the first look after what happens next: those before it find nothing new."""
        until_next = min(self._next_at(), *(turns.next_at() for turns in self._living()), math.inf) - self._elapsed
        looks = max(1, math.ceil(min(until_next, left_s, self.coarse_s) / every_s))
        return min(looks * every_s, left_s)

    def repeat(self, name: str, act: Callable[[], float | None], first_s: float = 0.0) -> Repetition:
        turns = _Turns(self, act, first_s)
        self._repetitions.append(turns)
        return turns

    def _living(self) -> list[_Turns]:
        self._repetitions = [turns for turns in self._repetitions if not turns.ended]
        return self._repetitions

    def _next_at(self) -> float:
        """Return when the next of the things of `at` and `after` happens; never, if infinite."""
        while self._due and self._due[0].cancelled:
            heapq.heappop(self._due)
        return self._due[0].at if self._due else math.inf

    def _pass(self, until: float, is_over: Callable[[], bool]) -> None:
        """Let time pass up to `until`, or until something that happens makes `is_over` true.

        Where no time is to pass, nothing happens: a wait of no seconds is a look, often in the midst of what happens.
        """
        if until <= self._elapsed:
            return
        while not is_over():
            turns = min(self._living(), key=lambda turns: turns.next_at(), default=None)
            turn_at = turns.next_at() if turns else math.inf
            due_at = self._next_at()
            if min(due_at, turn_at) > until:
                self._elapsed = max(self._elapsed, until)
                return
            # What happens comes before a look at it in the same instant.
            if due_at <= turn_at:
                due = heapq.heappop(self._due)
                self._elapsed = max(self._elapsed, due.at)
                self.happened += 1
                due.act()
            elif turns:
                self._elapsed = max(self._elapsed, turn_at)
                turns.play()


class _Turns(Repetition):
    """A repetition on a virtual clock."""

    def __init__(self, clock: VirtualClock, act: Callable[[], float | None], first_s: float) -> None:
        self._clock = clock
        self._act = act
        self._pause_s = first_s
        self._due_at = clock.monotonic() + first_s
        self._last_at = -math.inf
        self._seen = -1
        self._playing = False
        self.ended = False

    def next_at(self) -> float:
        """Return when the next turn is played: later than it is due where it would find nothing new."""
        if self._playing:
            return math.inf
        due_at = max(self._due_at, self._clock.monotonic())
        if self._pause_s < _LOOKS_WITHIN_S and self._clock.happened == self._seen:
            return max(due_at, min(self._clock._next_at(), self._last_at + self._clock.coarse_s))
        return due_at

    def play(self) -> None:
        self._seen, self._last_at = self._clock.happened, self._clock.monotonic()
        self._playing = True  # a turn that waits lets others happen, and not itself again
        try:
            pause_s = self._act()
        finally:
            self._playing = False
        if pause_s is None:
            self.ended = True
        else:
            self._pause_s, self._due_at = pause_s, self._clock.monotonic() + pause_s

    def stop(self, timeout_s: float = 0.0) -> None:
        self.ended = True
