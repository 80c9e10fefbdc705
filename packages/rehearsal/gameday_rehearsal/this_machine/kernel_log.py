"""The kernel log of this machine as it grows: from /dev/kmsg, or from journald for those who may read only that.

Both begin with what is logged after the start, as `dmesg --follow-new`: the ring buffer may hold the Xids of earlier
game-days.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from gameday.host.kernel_log import render_record

log = logging.getLogger(__name__)

KMSG = Path("/dev/kmsg")
JOURNAL = ("journalctl", "--dmesg", "--follow", "--lines=0", "--output=json", "--quiet")
_MAX_RECORD = 8192
"""CONSOLE_EXT_LOG_MAX of older kernels, in bytes: a read() with a smaller buffer fails with EINVAL."""
_READS_AT_ONCE = 1000
_JOURNAL_LINE_BYTES = 1 << 20
"""More than an entry of journald has with a record of the kernel's and its own fields."""
Take = Callable[[str], None]
"""A function that gets each line as `dmesg` prints it: `[seconds.micros] text`."""


@asynccontextmanager
async def following(take: Take, device: Path = KMSG) -> AsyncIterator[None]:
    """Pass on what the kernel logs during the block, from /dev/kmsg or else from journald.

    Raises:
        OSError: Neither can be read.
    """
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        async with _following_journal(take):
            yield
        return
    loop = asyncio.get_running_loop()
    try:
        os.lseek(descriptor, 0, os.SEEK_END)
        loop.add_reader(descriptor, _read, descriptor, take)
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _read(descriptor: int, take: Take) -> None:
    """Pass on the new records; what is left after many is read at the next turn of the loop."""
    for _ in range(_READS_AT_ONCE):
        try:
            take(render_record(os.read(descriptor, _MAX_RECORD)))
        except BlockingIOError:
            return
        except ValueError as error:
            log.warning("%s", error)
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            log.warning("the kernel log grew faster than it was read: some lines are lost")


@asynccontextmanager
async def _following_journal(take: Take) -> AsyncIterator[None]:
    journal = await asyncio.create_subprocess_exec(
        *JOURNAL,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_JOURNAL_LINE_BYTES,
    )
    reading = asyncio.create_task(_read_journal(journal, take))
    try:
        yield
    finally:
        reading.cancel()
        with suppress(ProcessLookupError):
            journal.kill()
        await journal.wait()


async def _read_journal(journal: asyncio.subprocess.Process, take: Take) -> None:
    assert journal.stdout
    async for entry in journal.stdout:
        if line := journal_line(entry):
            take(line)
    log.error("journalctl ended, so no kernel log is shipped any more")


def journal_line(entry: bytes) -> str | None:
    """Return a journal's entry as `dmesg` prints it; None for one that is not text of the kernel's."""
    try:
        fields = json.loads(entry)
        micros, text = int(fields["_SOURCE_MONOTONIC_TIMESTAMP"]), fields["MESSAGE"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(text, str):  # journald writes bytes that are no text as a list of numbers
        return None
    shown = "".join(c if c.isprintable() or c == "\t" else f"\\x{ord(c):02x}" for c in text)
    return f"[{micros // 1_000_000:5d}.{micros % 1_000_000:06d}] {shown}"
