"""The ways a run stops early, and the flag that makes waits notice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal

from gameday.errors import AbortedError, RefusedError, StopRunError

# SIGHUP: the terminal is gone, or the connection that carried it.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Signals are the process's, and only its main thread hears of them: these are the open runs of the other threads.
_ELSEWHERE: set[Abort] = set()


class Abort:
    """Set once, by a signal, a guard or a lost lease; read by every wait. `hurried`: asked by signal a second time."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._error: StopRunError | None = None
        self.hurried = False

    def request(self, by: Literal["operator", "guard"], why: str) -> None:
        """Ask the run to stop; the first request's reason is kept."""
        if self._error is None:
            self._error = AbortedError(by, why)
        self._requested.set()

    def refuse(self, error: RefusedError) -> None:
        """End the run with this refusal as soon as its first step begins."""
        self._error = self._error or error
        self._requested.set()

    @property
    def requested(self) -> StopRunError | None:
        """What `check` would raise."""
        return self._error

    def pass_on(self) -> None:
        """Ask the runs of the other threads for the same; those that were asked before keep their own reason."""
        if self._error is not None:
            for other in list(_ELSEWHERE):
                other._take_over(self._error, hurried=self.hurried)

    def _take_over(self, error: StopRunError, *, hurried: bool) -> None:
        self._error, self.hurried = self._error or error, hurried
        self._requested.set()

    @property
    def by_operator(self) -> bool:
        return isinstance(self._error, AbortedError) and self._error.by == "operator"

    def check(self) -> None:
        """Raise AbortedError if somebody asked, and the refusal where there is one."""
        if self._error is not None:
            raise self._error

    def sleep(self, seconds: float) -> None:
        """Wait at most this long; raises AbortedError as soon as somebody asks."""
        self._requested.wait(seconds)
        self.check()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGINT, SIGTERM and SIGHUP ask for an abort; a second one hurries the undo along, and never interrupts it.

        A SIGHUP that was ignored before, as by nohup, stays so.
        Only the main thread can install handlers; whoever opened a run in another thread asks it (`pass_on`).
        """
        if threading.current_thread() is not threading.main_thread():
            _ELSEWHERE.add(self)
            try:
                yield
            finally:
                _ELSEWHERE.discard(self)
            return
        before = {which: signal.getsignal(which) for which in _SIGNALS}
        if before[signal.SIGHUP] is signal.SIG_IGN:
            del before[signal.SIGHUP]
        for which in before:
            signal.signal(which, self._signalled)
        try:
            yield
        finally:
            for which, handler in before.items():
                signal.signal(which, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self.hurried = self._error is not None
        self._error = self._error or AbortedError("operator", f"{signal.Signals(number).name} received")
        # A handler may find its own thread inside the event's lock, which cannot be taken twice: another thread waits
        # for it, and this one goes on.
        threading.Thread(target=self._requested.set, name="abort", daemon=True).start()
