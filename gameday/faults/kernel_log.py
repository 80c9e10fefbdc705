"""Write lines into the kernel log as a driver would, and count them when reading back; shared by the log faults."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.host.base import Host

_PRIORITY = "<3>"
"""Facility 0 and severity error, like the driver; the kernel changes facility 0 to LOG_USER for a user's write."""
_HARMLESS = "<6>"
MOST_REPEATS = 10
"""printk's own rate limit for /dev/kmsg, ten in five seconds (docs/sources.md, printk and /dev/kmsg)."""
NOTHING_TO_UNDO = "nothing to undo on the host: a kernel-log record stays until the ring buffer wraps or the node boots"


def write(host: Host, line: str, times: int) -> Evidence:
    """Write a line a number of times. Raises HostError if the log does not then hold that many more of it."""
    before = _count(host, line)
    written_at = datetime.now(UTC)
    for _ in range(times):
        host.write_kernel_log(_PRIORITY + line)
    after = _count(host, line)
    if after - before < times:
        raise HostError(
            f"wrote {times} kernel-log record(s) and found {after - before} new on reading back; "
            "is printk.devkmsg rate-limiting, or the ring buffer wrapping?"
        )
    lines = (
        f"before: {before} such record(s) in the kernel log",
        f"written x{times}: {_PRIORITY}{line}",
        f"after: {after} such record(s) in the kernel log",
    )
    return Evidence(lines=lines, written_at=written_at)


def _count(host: Host, line: str) -> int:
    return sum(line in found for found in host.read_kernel_log())


class LogClock:
    """The kernel log's clock beside the wall's, and the lines since the two were compared.

    The log's own clock drifts from every other; so a harmless line of ours is written, and its stamp read back.
    """

    def __init__(self, host: Host) -> None:
        """Write the line. Raises HostError if it cannot be read back."""
        self._host = host
        self._mark = f"gameday-agent: clock {uuid.uuid4().hex[:12]}"
        before = datetime.now(UTC)
        host.write_kernel_log(_HARMLESS + self._mark)
        self._at = before + (datetime.now(UTC) - before) / 2
        mine = next((line for line in host.read_kernel_log() if self._mark in line), None)
        if mine is None:
            raise HostError(f"wrote {self._mark!r} to the kernel log and did not find it on reading back")
        self._stamp_s = _stamp_s(mine)

    def wall_time(self, stamp_s: float) -> datetime:
        """Return the wall time of a line's stamp."""
        return self._at + timedelta(seconds=stamp_s - self._stamp_s)

    def new_lines(self) -> Iterator[str]:
        """Return the lines that the log has got since. Raises HostError."""
        return (line for line in self._host.read_kernel_log() if _stamp_s(line) > self._stamp_s)


def _stamp_s(line: str) -> float:
    """Return the seconds of a line as `Host.read_kernel_log` gives it."""
    return float(line[1 : line.index("]")])
