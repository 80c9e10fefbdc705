"""A file of lines, each of which is on the disk before the caller goes on, and what happens if the disk fails.

A separate thread writes, so that a network file system that hangs stops that thread, and not an undo that has something
to note.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import weakref
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue

from gameday.plain_file import open_plain, open_to_append

_HANGS_AFTER_S = 30.0
"""Seconds that a line waits for the disk, our own choice: six times ext4's commit interval (ext4(5), `commit`)."""
RESERVE_BYTES = 512 * 1024
"""Room for a run's last events and its report, or the report's first screen; docs/measured.md has their sizes."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class DurableLines:
    """The writing end of the file, for any number of threads.

    A line that cannot be written is kept, and written before the next one. The first line that finds no room frees the
    reserve, for itself and the lines after it.
    """

    def __init__(self, path: Path, reserve_bytes: int = 0) -> None:
        """Open the file, and create it if it is missing. Raises OSError, also if there is no room to reserve."""
        self._writer = _Writer(path, reserve_bytes)
        self._patience_s = _HANGS_AFTER_S
        self._added = 0
        self._hung: OSError | None = None
        # The thread knows only the writer, so it ends when nobody uses this object any more.
        self._close = weakref.finalize(self, self._writer.tasks.put, None)
        threading.Thread(target=self._writer.write_all, name="history", daemon=True).start()

    def add(self, line: bytes) -> None:
        """Write a line; return once it is on the disk, has failed, or hangs. After `close` do nothing."""
        if not self._close.alive:
            return
        written = threading.Event()
        self._added += 1
        self._writer.tasks.put((line, written))
        if not written.wait(self._patience_s):
            self._patience_s = 0.0  # nobody waits a second time
            why = f"no answer for {_HANGS_AFTER_S:g} s: its file system hangs"
            self._hung = self._hung or TimeoutError(errno.ETIMEDOUT, why)

    @property
    def failed(self) -> OSError | None:
        """The first error; None if every line was written at once."""
        return self._writer.failed or self._hung

    @property
    def is_whole(self) -> bool:
        """True if all lines are on the disk, including those that could not be written at first."""
        return self._writer.written == self._added

    def release_reserve(self) -> None:
        """Free the reserve's room for other writers."""
        self._writer.release_reserve()

    def close(self) -> None:
        """Close the file once the earlier lines are written. Idempotent; the reserve stays."""
        self._close()


class _Writer:
    """The thread's part of `DurableLines`."""

    def __init__(self, path: Path, reserve_bytes: int) -> None:
        self.tasks: SimpleQueue[tuple[bytes, threading.Event] | None] = SimpleQueue()
        self.failed: OSError | None = None
        self.written = 0
        self._path = path
        self._file = open_to_append(path)
        self._unwritten: list[bytes] = []
        self._is_torn = _ends_torn(path)
        # It has no name, so it goes with the process, and nobody takes it for one of the run's files.
        self._reserve = ExitStack()
        if reserve_bytes:
            reserve = self._reserve.enter_context(tempfile.TemporaryFile(dir=path.parent))  # noqa: SIM115
            os.posix_fallocate(reserve.fileno(), 0, reserve_bytes)

    def write_all(self) -> None:
        """Write lines until the end is asked for."""
        while task := self.tasks.get():
            line, done = task
            self._unwritten.append(line)
            try:
                self._write_or_give_up_reserve()
            except OSError as error:
                self.failed = self.failed or error
            done.set()
        self._file.close()

    def release_reserve(self) -> None:
        self._reserve.close()

    def _write_or_give_up_reserve(self) -> None:
        try:
            self._write()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self.failed = self.failed or error
            self.release_reserve()
            self._write()

    def _write(self) -> None:
        # A file that was deleted, or that another file system covers, takes every line but shows none.
        here, file = self._path.stat(), self._file.fileno()
        if not os.path.samestat(here, os.fstat(file)):
            raise FileNotFoundError(errno.ENOENT, "it is no longer the file that was opened", str(self._path))
        left = memoryview(b"\n" * self._is_torn + b"".join(self._unwritten))
        try:
            while left:  # a disk that becomes full takes a part, and says so only when asked for the rest
                left = left[os.write(file, left) :]
            os.fsync(file)
        except OSError:
            before, self._is_torn = self._is_torn, True
            with suppress(OSError):
                os.ftruncate(file, here.st_size)
                self._is_torn = before
            raise
        self._is_torn = False
        self.written += len(self._unwritten)
        self._unwritten.clear()


def _ends_torn(path: Path) -> bool:
    """Return True if the last line has no end: a killed process left it, and the next line must not be joined to it."""
    with open_plain(path) as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
