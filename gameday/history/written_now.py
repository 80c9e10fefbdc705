"""A lock that shows whether the process that writes a history lives: the kernel takes it back when it ends.

The lock is advisory (flock(2)): it keeps nobody from reading or writing. A reaper that writes into a dead run's
history holds it for that moment.
"""

from __future__ import annotations

import fcntl
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gameday.plain_file import open_plain, open_to_append


def mark_as_written(path: Path) -> BinaryIO:
    """Return the file, which holds the lock until it is closed, if the file system knows locks and nobody else has it.

    Raises OSError if it cannot be opened.
    """
    file = open_to_append(path)
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def is_written_now(path: Path) -> bool:
    """Return True if a living process has the file open to write; False if nobody can tell.

    A network file system tells it of processes on other machines as well, if it is mounted with locks (nfs(5)).
    """
    try:
        with open_plain(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
