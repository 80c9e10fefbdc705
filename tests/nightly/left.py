"""The left-overs of a suite on the machine: processes, listening sockets, mounts, and files of the user's own Prefect.

The nightly adopts what its suites' processes leave behind, as init would: so whatever descends from it after a suite
was left by that suite, whatever its command line says, and nothing of anybody else's does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_LISTENS = "0A"  # net/tcp_states.h, as /proc/net/tcp has it
SETTLES_WITHIN_S = 30.0
"""Seconds that a suite's processes have for their own end: `Child.end` waits 5 s before it kills, on a busy machine."""
_LOOK_EVERY_S = 0.1


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent is gone."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def bury(except_for: int | None = None) -> None:
    """Reap the adopted processes that ended: a test may wait for a process that it killed to be gone altogether."""
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == except_for:
                return
            os.waitpid(ended.si_pid, 0)


def look(prefect: Path) -> set[str]:
    """Return all that a suite could have left, each in words; `prefect` is the home of the user's own Prefect."""
    ours = set(descendants())
    found = {f"process {pid}: {words}" for pid in ours if (words := _command_line(pid))}
    found |= {f"listening socket {address}" for address in _listening(ours)}
    found |= {f"mount {line.split()[1]}" for line in Path("/proc/self/mounts").read_text().splitlines()}
    return found | {f"file {path}" for path in prefect.rglob("*") if not path.is_dir()}


def new_since(before: set[str], prefect: Path) -> list[str]:
    """Return what is there and was not, as soon as nothing is, or what still is when the patience ends."""
    deadline = time.monotonic() + SETTLES_WITHIN_S
    while True:
        bury()
        left = look(prefect) - before
        if not left or time.monotonic() > deadline:
            return sorted(left)
        time.sleep(_LOOK_EVERY_S)


def end_descendants() -> None:
    """Kill whatever still descends from this process, so that the next suite has the machine to itself."""
    while pids := list(descendants()):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        bury()
        time.sleep(_LOOK_EVERY_S)


def descendants() -> Iterator[int]:
    """Yield the processes that descend from this one, without those that only wait to be reaped."""
    children: dict[int, list[int]] = {}
    dead = set()
    for pid in _pids():
        with suppress(OSError):
            state, parent = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            children.setdefault(int(parent), []).append(pid)
            dead |= {pid} if state in "ZX" else set()
    todo = children.get(os.getpid(), [])
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        if pid not in dead:
            yield pid


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def _listening(ours: set[int]) -> set[str]:
    """Return this user's listening TCP sockets that no process of somebody else's holds."""
    before = _listeners()
    others = {inode for pid in _pids() if pid not in ours for inode in _sockets(pid)}
    # One that came or went while the holders were looked up has none.
    return {words for inode, words in _listeners().items() if inode in before and inode not in others}


def _listeners() -> dict[str, str]:
    """Return the sockets by their inodes."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            local, state, user, inode = fields[1], fields[3], fields[7], fields[9]
            if state == _LISTENS and int(user) == os.getuid():
                found[inode] = f"{table} port {int(local.rpartition(':')[2], 16)}"
    return found


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    yield target[8:-1]
