"""A lock that shows whether the process that writes a history is alive: the kernel releases it when that ends.

The lock is advisory (flock(2)): it stops nobody from reading or writing. A reaper holds it while it writes into a dead
run's history.
"""

from __future__ import annotations

import fcntl
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gameday.plain_file import open_plain, open_to_append


def mark_as_written(path: Path) -> BinaryIO:
    """Open the file and lock it until it is closed, if the file system has locks and no other process holds it.

    Raises OSError if it cannot be opened.
    """
    file = open_to_append(path)
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def is_written_now(path: Path) -> bool:
    """Return True if a living process has the file open for writing; False if that is not known.

    A network file system also knows the processes of other machines if it is mounted with locks (nfs(5)).
    """
    try:
        with open_plain(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
