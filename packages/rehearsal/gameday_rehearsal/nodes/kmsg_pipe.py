"""A named pipe that reads like /dev/kmsg, for detectors that open a path.

It has one reader. A pipe gives each packet to the reader that asks first, so each of two readers would have half of
the log. /dev/kmsg gives each reader a position of its own, which no file in a folder can do.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import stat
from pathlib import Path

from gameday_rehearsal.nodes.kernel_log import KernelLog

_LOOK_EVERY_S = 0.05


class KmsgPipe:
    """The pipe of one machine, in packet mode: a read gets one record.

    A program that opens it reads from the beginning of the ring buffer, so nothing is lost while nobody reads, up to
    the buffer's size. A slower reader misses the oldest records; /dev/kmsg would answer with EPIPE. When the machine
    goes down, the reader finds the end of the file.
    """

    def __init__(self, path: Path, log: KernelLog) -> None:
        """Make the pipe. Raises OSError, also if something else has this name."""
        if path.exists() and not stat.S_ISFIFO(path.stat().st_mode):
            raise FileExistsError(f"{path} exists and is not a pipe: name another folder, or remove it")
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        self._path = path
        self._log = log
        self._fd = -1
        self._timer: asyncio.TimerHandle | None = None
        self._next: int | None = None  # the sequence number to write next; None if nobody reads
        self._fresh()

    def logged(self) -> None:
        """Take note of a new record in the log."""
        if self._next is not None:
            self._write()

    def down(self) -> None:
        """End what is being read, because the machine is off."""
        self._drop()

    def up(self) -> None:
        """Start again with an empty ring buffer, because the machine has booted."""
        self._fresh()

    def close(self) -> None:
        """Remove the pipe."""
        self._drop()
        self._path.unlink(missing_ok=True)

    def _fresh(self) -> None:
        """Open the pipe again, which drops what the last reader left in it, and wait for the next reader."""
        self._drop()
        # A pipe without a reader cannot be opened for writing, so give it one for a moment. While it is open for
        # writing, a reader that does not want to wait gets "nothing yet" and not the end of the file.
        reader = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) | os.O_DIRECT)
        os.close(reader)
        self._look()

    def _drop(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._fd >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._fd)
            loop.remove_writer(self._fd)
            os.close(self._fd)
        self._fd, self._next = -1, None

    def _look(self) -> None:
        """Begin to write once there is a reader; the kernel does not tell the writer about it."""
        poll = select.poll()
        poll.register(self._fd, 0)
        loop = asyncio.get_running_loop()
        if poll.poll(0):  # POLLERR: nobody reads
            self._timer = loop.call_later(_LOOK_EVERY_S, self._look)
            return
        self._timer, self._next = None, 0
        loop.add_reader(self._fd, self._fresh)  # its only event is POLLERR, when the reader closes
        self._write()

    def _write(self) -> None:
        assert self._next is not None
        loop = asyncio.get_running_loop()
        for record in self._log.since(self._next):
            try:
                os.write(self._fd, record.kmsg)
            except BlockingIOError:
                loop.add_writer(self._fd, self._write)
                return
            except BrokenPipeError:
                self._fresh()
                return
            self._next = record.sequence + 1
        loop.remove_writer(self._fd)
