"""A machine's /dev/kmsg at a path that a container's process may open to write and to read: a pseudo-terminal.

It differs from the device: it has one reader, who may get several records at once, and a write that is not ended by a
newline waits for one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tty

from gameday_rehearsal.nodes.kernel_log import KernelLog

log = logging.getLogger(__name__)

_CHUNK = 65_536


class KmsgTerminal:
    """The terminal of one process; a process that has it open loses it when it is closed, as with its node."""

    def __init__(self, kernel_log: KernelLog) -> None:
        """Open it. Raises OSError."""
        self._log = kernel_log
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)
        os.set_blocking(self._ours, False)
        self.path = os.ttyname(self._theirs)
        self._written = b""
        self._next = 0
        loop = asyncio.get_running_loop()
        loop.add_reader(self._ours, self._take)
        loop.add_writer(self._ours, self._give)

    def close(self) -> None:
        """End what is being read and written. Idempotent."""
        if self._ours < 0:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._ours)
        loop.remove_writer(self._ours)
        os.close(self._ours)
        os.close(self._theirs)
        self._ours = -1

    def _take(self) -> None:
        """Log each line that the process has written."""
        *lines, self._written = (self._written + os.read(self._ours, _CHUNK)).split(b"\n")
        for line in lines:
            try:
                self._log.write(line.decode("utf-8", "replace") + "\n")
            except OSError as error:
                log.warning("a record of a pod is refused: %s", error.strerror)
        asyncio.get_running_loop().add_writer(self._ours, self._give)

    def _give(self) -> None:
        """Write the records that the process has not been given yet, from the oldest in the ring buffer on."""
        for record in self._log.since(self._next):
            try:
                os.write(self._ours, record.kmsg)
            except BlockingIOError:
                return
            self._next = record.sequence + 1
        asyncio.get_running_loop().remove_writer(self._ours)
