"""Work in a process of its own that ends: the memory that pandas and a report need is not the game-day's.

The process leads a session of its own, so that a Ctrl-C reaches only the game-day, which decides what it means.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout

_ENDS_WITHIN_S = 900.0
"""Seconds, our own choice: what takes longer waits for a file system that hangs."""
_OS_ERROR = 74
"""EX_IOERR of sysexits.h: the answer is an OSError."""


def ask(module: str, request: bytes) -> bytes:
    """Let `python -m module` do a piece of work, and return its answer.

    Args:
        module: A module whose main part calls `answer`.
        request: What its standard input is.

    Raises:
        OSError: The work ended with it or not at all, or the process cannot be started.
        RuntimeError: The work ended with another error, which is a bug of ours, or something killed the process.
    """
    argv = [sys.executable, "-m", module]
    try:
        done = subprocess.run(
            argv, input=request, capture_output=True, start_new_session=True, check=False, timeout=_ENDS_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(errno.ETIMEDOUT, f"no end after {_ENDS_WITHIN_S:g} s: its file system hangs") from None
    if done.returncode == _OS_ERROR:
        raise OSError(*json.loads(done.stdout))
    said = done.stderr.decode(errors="replace")
    if done.returncode:
        last = said.strip().rpartition("\n")[2]
        error = RuntimeError(f"{module} ended with {done.returncode}: {last or 'it said nothing'}")
        error.add_note(said)
        raise error
    sys.stderr.write(said)
    return done.stdout


def answer(work: Callable[[bytes], bytes]) -> None:
    """Do the work that `ask` asked for; what it prints goes to standard error."""
    try:
        with redirect_stdout(sys.stderr):
            answered = work(sys.stdin.buffer.read())
    except OSError as error:
        answered = json.dumps([error.errno, error.strerror, error.filename and os.fspath(error.filename)]).encode()
        sys.stdout.buffer.write(answered)
        sys.exit(_OS_ERROR)
    sys.stdout.buffer.write(answered)
