"""The folder of a virtual cluster, as its users see it: whether it runs, and why it ended."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

LOCK = "lock"
"""Locked by the process that holds the folder; it holds that process's number."""
ENDED = "ended"
"""A sentence: why the cluster ended without being asked to. The next cluster in the folder removes it."""


def why_ended(folder: Path | None) -> str:
    """Return why the virtual cluster of a folder no longer runs; empty while it runs, and for a real one (None).

    Empty also if the folder cannot be seen from here, as from a container.
    """
    if folder is None or not (folder / LOCK).exists():
        return ""
    try:
        return (folder / ENDED).read_text(encoding="utf-8")
    except OSError:
        return "" if holder(folder) is not None else f"the virtual cluster in {folder} no longer runs"


def holder(folder: Path) -> int | None:
    """Return the process that holds the folder: None if there is none, 0 before it has written its number."""
    try:
        lock = (folder / LOCK).open(encoding="ascii")
    except OSError:
        return None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return written_pid(lock)
    return None


def written_pid(lock: IO[str]) -> int:
    """Return the number in a lock file; 0 if there is none yet."""
    text = lock.read(20).strip()
    return int(text) if text.isdecimal() else 0
