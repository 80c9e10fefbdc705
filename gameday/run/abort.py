"""The ways in which a run may stop before its last step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal

from gameday.clock import Clock
from gameday.errors import AbortedError, StopRunError

_WORDS = {
    signal.SIGINT: "you pressed Ctrl-C",
    signal.SIGTERM: "its process was told to end (SIGTERM), as a cancel in Prefect or a shutdown does",
    signal.SIGHUP: "its terminal, or the connection to it, was closed (SIGHUP)",
}
# Only a process' main thread can handle signals. These belong to open runs in its other threads.
_IN_OTHER_THREADS: set[Abort] = set()


class Abort:
    """A request to stop, made once by a signal, a guardrail or a lost lease, and checked by every wait."""

    def __init__(self, clock: Clock = Clock()) -> None:
        self._clock = clock
        self._requested = threading.Event()
        self._error: StopRunError | None = None
        self._second_signal = False

    def request(self, by: Literal["operator", "guard"], why: str) -> None:
        """Ask the run to abort; the first request's reason is kept."""
        self.stop_with(AbortedError(by, why))

    def stop_with(self, error: StopRunError) -> None:
        """Ask the run to end with `error`; an earlier request's error is kept."""
        self._error = self._error or error
        self._requested.set()

    @property
    def requested(self) -> StopRunError | None:
        """The error that `check` would raise; None until a stop is requested."""
        return self._error

    @property
    def by_operator(self) -> bool:
        """True if a signal requested the stop."""
        return isinstance(self._error, AbortedError) and self._error.by == "operator"

    @property
    def second_signal(self) -> bool:
        """True after a second signal: then the undo waits for nothing that can be left to the reaper."""
        return self._second_signal

    def forward_to_other_runs(self) -> None:
        """Ask the runs in this process's other threads to stop as well; each keeps its own earlier reason."""
        if self._error is not None:
            for other in list(_IN_OTHER_THREADS):
                other._receive(self._error, second_signal=self._second_signal)

    def _receive(self, error: StopRunError, *, second_signal: bool) -> None:
        self._second_signal = second_signal
        self.stop_with(error)

    def check(self) -> None:
        """Raise the error of the first request to stop, if there is one."""
        if self._error is not None:
            raise self._error

    def sleep(self, seconds: float) -> None:
        """Wait at most this long; raise as `check` does as soon as a stop is requested."""
        self._clock.wait_set(self._requested, seconds)
        self.check()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Let SIGINT, SIGTERM and SIGHUP request an abort while the block runs.

        A second signal hurries the undo and never interrupts it. A SIGHUP that was ignored before, for example by
        nohup, stays ignored. Only the main thread can install a handler; `forward_to_other_runs` reaches runs in other
        threads.
        """
        if threading.current_thread() is not threading.main_thread():
            _IN_OTHER_THREADS.add(self)
            try:
                yield
            finally:
                _IN_OTHER_THREADS.discard(self)
            return
        before = {which: signal.getsignal(which) for which in _WORDS}
        if before[signal.SIGHUP] is signal.SIG_IGN:
            del before[signal.SIGHUP]
        for which in before:
            signal.signal(which, self._on_signal)
        try:
            yield
        finally:
            for which, handler in before.items():
                signal.signal(which, handler)

    def _on_signal(self, signal_number: int, frame: FrameType | None) -> None:
        self._second_signal = self._error is not None
        self._error = self._error or AbortedError("operator", _WORDS[signal.Signals(signal_number)])
        # The handler may interrupt its own thread inside the event's lock, which cannot be taken twice. So another
        # thread waits for the lock, and this one goes on.
        threading.Thread(target=self._requested.set, name="abort", daemon=True).start()
