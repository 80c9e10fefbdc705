"""A cluster's folder and the process that holds it: a kernel lock shows that one does, the lock file names it.

A process number alone would not do: after a kill, another process may get the same number.

We read the library filelock (4.2) and left it out. Its lock runs code of its own around every fork of the process,
but the supervisor forks children while other threads import. And to find out who holds a folder it offers only
flock(2) itself, which is all that this module needs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import IO

from gameday.cluster.virtual_cluster import ENDED, LOCK, written_pid
from gameday.errors import FolderHeldError
from gameday.processes.prefect_server import AUTH_FILE

STATE = "state.json"
ALERTMANAGER_PASSWORD = "alertmanager-password"  # noqa: S105 - the file's name
"""The file with the password that the cluster's Alertmanager asks for."""
_OF_THE_LIVING = (STATE, AUTH_FILE, ALERTMANAGER_PASSWORD)
_LEFTOVERS = (
    "control-plane",
    "logstore",
    "prometheus-data",
    "alertmanager-data",
    "pods",
    "detectors",
    "guests",
    "kernel-logs",
)
"""Folders that an ended cluster left. Prefect's folder stays: its pages also show the game-days of earlier clusters."""


class HeldFolder:
    """A cluster's folder, empty and locked until `release` or the end of this process."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, lock it, and remove what an ended cluster left.

        Raises:
            FolderHeldError: A living process holds it.
            OSError: It cannot be written.
        """
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _locked(folder / LOCK)
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()
        self.empty()
        (folder / ".gitignore").write_text(
            "*\n", encoding="utf-8"
        )  # kubeconfigs and passwords do not belong to a project

    def empty(self) -> None:
        """Remove what an ended cluster left. Raises OSError."""
        for name in (*_OF_THE_LIVING, ENDED):
            (self.folder / name).unlink(missing_ok=True)
        for stale in _LEFTOVERS:
            shutil.rmtree(self.folder / stale, ignore_errors=True)
        for log in self.folder.glob("*.log"):
            log.unlink()

    def release(self) -> None:
        """Unlock the folder. Its logs stay."""
        for name in _OF_THE_LIVING:
            (self.folder / name).unlink(missing_ok=True)
        self._lock.close()


def _locked(path: Path) -> IO[str]:
    file = path.open("a+", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with file:
            file.seek(0)
            raise FolderHeldError(written_pid(file)) from None
    return file
