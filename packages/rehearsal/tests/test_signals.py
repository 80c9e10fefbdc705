from __future__ import annotations

import subprocess
import sys

_BEGIN = """
import os, select, signal, time
from gameday_rehearsal.signals import broken_off_by_signals, ignore_signals
before = signal.getsignal(signal.SIGINT)  # ignored, where a shell started the tests in the background
"""
# The handler runs inside the finalizer, and Python drops what a finalizer raises.
_SWALLOWED = """
class Swallows:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)
with broken_off_by_signals():
    try:
        Swallows()
        print("goes on", flush=True)
        select.select([], [], [])
    except KeyboardInterrupt:
        print("broken off")
    finally:
        ignore_signals()
"""
_TWICE = """
with broken_off_by_signals():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        ignore_signals()
        print("ended in peace", signal.getitimer(signal.ITIMER_REAL))
print(signal.getsignal(signal.SIGINT) is before)
"""


def _said(script: str) -> list[str]:
    argv = [sys.executable, "-c", _BEGIN + script]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


def test_a_signal_whose_exception_python_dropped_still_ends_the_block() -> None:
    assert _said(_SWALLOWED) == ["goes on", "broken off"]


def test_later_signals_do_not_break_off_the_end_and_what_was_before_is_back() -> None:
    assert _said(_TWICE) == ["ended in peace (0.0, 0.0)", "True"]
