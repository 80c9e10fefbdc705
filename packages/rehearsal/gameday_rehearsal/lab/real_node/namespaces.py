"""Join the namespaces of a process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

PID = "pid"
"""The file in a node's folder with the number of its first process; it gets another when the node starts again."""

_LIBC = ctypes.CDLL(None, use_errno=True)


def first_process(folder: Path) -> int:
    """Return the number of a node's first process. Raises OSError, and ValueError if it is not there yet."""
    return int((folder / PID).read_text(encoding="ascii"))


def join(pid: int, kinds: Sequence[str]) -> None:
    """Move the calling thread into namespaces of a process (setns(2)); of `pid`, only its later children are moved.

    `kinds` are names of files in /proc/PID/ns, in the order in which they are joined. Raises OSError.
    """
    with ExitStack() as opened:
        files = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in kinds]
        for file in files:
            opened.callback(os.close, file)
        for kind, file in zip(kinds, files, strict=True):
            if _LIBC.setns(file, 0) != 0:
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), f"/proc/{pid}/ns/{kind}")
