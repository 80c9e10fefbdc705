"""The time of a run: what it reads, and the only ways in which it waits.

A run takes its clock from its record (`RunRecord.clock`), and every adapter uses the clock of its run. Tests replace it
by a virtual clock that advances only while somebody waits: `tests/support/virtual_clock.py`.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime


class Repetition(ABC):
    """An act that is repeated beside the run."""

    @abstractmethod
    def stop(self, timeout_s: float = 0.0) -> None:
        """Start no further turn; give the current one up to `timeout_s` to end."""


class Clock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the wall time in UTC: for people, and to compare with other machines' times."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back, from an arbitrary start: for durations."""
        return time.monotonic()

    def boottime(self) -> float:
        """Return seconds of a monotonic clock that also counts while the machine sleeps, if the system has one."""
        return boottime_s()

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        time.sleep(seconds)

    def wait_set(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until the event is set; return False after the time-out."""
        return event.wait(timeout_s)

    def wait_changed(
        self,
        changed: threading.Condition,
        condition: Callable[[], bool],
        timeout_s: float,
        check_every_s: float | None = None,
    ) -> bool:
        """Wait until `condition` holds. It is called now, and after every notice of `changed`.

        Args:
            changed: The lock that is held while `condition` runs.
            condition: Called in this thread.
            timeout_s: The longest wait.
            check_every_s: Also call it after this many seconds without a notice; None: only after notices.

        Returns:
            True once the condition holds, False after the time-out.
        """
        deadline = self.monotonic() + timeout_s
        with changed:
            while not condition():
                left = deadline - self.monotonic()
                if left <= 0:
                    return False
                changed.wait(left if check_every_s is None else min(left, check_every_s))
        return True

    def pause(self, every_s: float, left_s: float) -> float:
        """Return how many seconds pass before a condition is worth another look.

        Args:
            every_s: Seconds between two looks.
            left_s: Seconds until the last look.
        """
        return min(every_s, left_s)

    def repeat(self, name: str, act: Callable[[], float | None], first_s: float = 0.0) -> Repetition:
        """Repeat an act beside the run, in a thread of its own.

        Args:
            name: The thread's name.
            act: One turn. It returns the seconds until the next one, or None to end.
            first_s: Seconds before the first turn.
        """
        return _Thread(name, act, first_s)


def boottime_s() -> float:
    """Return `Clock.boottime` of this machine, for a process that is not a run."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class _Thread(Repetition):
    """A repetition that runs in a daemon thread."""

    def __init__(self, name: str, act: Callable[[], float | None], first_s: float) -> None:
        self._act = act
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(first_s,), name=name, daemon=True)
        self._thread.start()

    def _run(self, pause_s: float | None) -> None:
        while pause_s is not None and not self._stopped.wait(pause_s):
            pause_s = self._act()

    def stop(self, timeout_s: float = 0.0) -> None:
        self._stopped.set()
        if timeout_s and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
