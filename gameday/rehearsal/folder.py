"""A cluster's folder and who holds it: the kernel's lock says that somebody does, the lock file says who.

A process number alone would not do: after a kill the number may be somebody else's.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import IO

from gameday.errors import FolderHeldError

LOCK = "lock"
STATE = "state.json"
_OF_LAST_TIME = ("control-plane", "logstore", "prometheus-data", "alertmanager-data", "pods")
"""Prefect's folder stays: its pages show the game-days of earlier clusters, too."""


class HeldFolder:
    """The folder, emptied of what an ended cluster left there and locked until `release` or this process' end."""

    def __init__(self, folder: Path) -> None:
        """Raises FolderHeldError, and OSError where the folder cannot be written."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder / LOCK)
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()
        self.empty()

    def empty(self) -> None:
        """Remove what an ended cluster left. Raises OSError."""
        (self.folder / STATE).unlink(missing_ok=True)
        for stale in _OF_LAST_TIME:
            shutil.rmtree(self.folder / stale, ignore_errors=True)
        for log in self.folder.glob("*.log"):
            log.unlink()

    def release(self) -> None:
        (self.folder / STATE).unlink(missing_ok=True)
        self._lock.close()


def holder(folder: Path) -> int | None:
    """The process that holds the folder; None when none does. Changes nothing."""
    try:
        lock = (folder / LOCK).open(encoding="ascii")
    except OSError:
        return None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _pid(lock)
    return None


def _locked(path: Path) -> IO[str]:
    file = path.open("a+", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with file:
            file.seek(0)
            raise FolderHeldError(_pid(file)) from None
    return file


def _pid(lock: IO[str]) -> int:
    text = lock.read(20).strip()
    return int(text) if text.isdecimal() else 0
