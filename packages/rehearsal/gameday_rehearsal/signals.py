"""Let Ctrl-C and SIGTERM break off a supervisor's work, reliably and once; nothing breaks off its end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# An exception that a handler raises is lost if it happens to run in a finalizer or in an at-fork hook, so it is raised
# again until the program calls `ignore_signals`. Unwinding up to there takes milliseconds.
_AGAIN_AFTER_S = 1.0


@contextmanager
def broken_off_by_signals() -> Iterator[None]:
    """Turn the first Ctrl-C or SIGTERM in this block into KeyboardInterrupt; end the block with `ignore_signals`."""
    before = {which: signal.signal(which, _break_off) for which in _SIGNALS}
    before[signal.SIGALRM] = signal.getsignal(signal.SIGALRM)
    try:
        yield
    finally:
        ignore_signals()
        for which, handler in before.items():
            signal.signal(which, handler)


def ignore_signals() -> None:
    """Ignore signals from here on, so that nothing breaks off the end."""
    for which in _SIGNALS:
        signal.signal(which, signal.SIG_IGN)
    if signal.getsignal(signal.SIGALRM) is _again:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _break_off(number: int, frame: FrameType | None) -> NoReturn:
    """Interrupt only on the first signal: a second one must not break off the end that the first began."""
    for which in _SIGNALS:
        signal.signal(which, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _again)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_AFTER_S, _AGAIN_AFTER_S)
    raise KeyboardInterrupt


def _again(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
