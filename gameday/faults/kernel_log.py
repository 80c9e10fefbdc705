"""Write lines into the kernel log as a driver would, and count them when reading back; shared by the log faults."""

from __future__ import annotations

from datetime import UTC, datetime

from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.host.base import Host

_PRIORITY = "<3>"
"""Facility 0 and severity error, like the driver; the kernel changes facility 0 to LOG_USER for a user's write."""
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
