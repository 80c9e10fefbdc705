"""`python guest_launcher.py PARENT GRACE PROGRAM [ARG…]`: run a guest's process, and end everything that it starts.

It stays the parent of all the guest's processes, even of those that leave its process group or lose their own parent
(PR_SET_CHILD_SUBREAPER). All of them get SIGTERM, and after GRACE seconds SIGKILL, in three cases: this process gets
SIGTERM, the process PARENT dies in any way, or the program itself ends. Then this process ends as the program did.

It is started as a file, with only the standard library, because each node has one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_KILL_AGAIN_S = 0.05
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_NOT_FOUND, _NOT_STARTED = 127, 126  # a shell's exit statuses


def main(parent: int, grace_s: float, argv: list[str]) -> int:
    """Run the program to its end and return its exit status; a signal that ended it also ends this process."""
    watched = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        return _NOT_STARTED
    try:
        program = os.posix_spawnp(argv[0], argv, os.environ, setsigmask=[], setsigdef=_IGNORED_BY_PYTHON)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND if error.errno == errno.ENOENT else _NOT_STARTED
    status = _await_all(program, watched, grace_s)
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    number = os.WTERMSIG(status)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return _NOT_STARTED


def children() -> dict[int, list[int]]:
    """Map each process to its present children."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            found.setdefault(_parent(entry), []).append(int(entry.name))
    return found


def descendants(pid: int, of: Mapping[int, list[int]]) -> Iterator[int]:
    """Yield the processes below a process; `of` maps each to its children."""
    waiting = list(of.get(pid, ()))
    while waiting:
        yield (found := waiting.pop())
        waiting += of.get(found, ())


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _await_all(program: int, watched: set[signal.Signals], grace_s: float) -> int:
    """Wait until none of the guest's processes is left; return the program's wait status."""
    status, ends_at = 0, None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == program:
            status = ended
        asked = False
        if pid == 0:
            due_s = None if ends_at is None else max(_KILL_AGAIN_S, ends_at - time.monotonic())
            got = signal.sigwaitinfo(watched) if due_s is None else signal.sigtimedwait(watched, due_s)
            asked = got is not None and got.si_signo == signal.SIGTERM
        if ends_at is None and (asked or pid == program):
            ends_at = time.monotonic() + grace_s
            _send(signal.SIGTERM)
        if ends_at is not None and time.monotonic() >= ends_at:
            _send(signal.SIGKILL)


def _send(number: signal.Signals) -> None:
    for pid in descendants(os.getpid(), children()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
