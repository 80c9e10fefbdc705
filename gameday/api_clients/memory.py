"""The machine's free memory: a storm ends by itself long before the machine suffers."""

from __future__ import annotations

from pathlib import Path

from gameday.errors import HostError

LEAST_FREE = 0.15
"""Share of the machine's memory below which a storm ends."""
MEMINFO = Path("/proc/meminfo")
"""The kernel's figures; in a container, too, they are the whole machine's."""


def free_share(meminfo: Path) -> float:
    """Return the share of the machine's memory that programs can still get, 0 to 1. Raises HostError."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
        kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return kib["MemAvailable"] / kib["MemTotal"]
    except (OSError, ValueError, IndexError, KeyError, ZeroDivisionError):
        raise HostError(f"cannot read how much memory is free: {meminfo} has no MemAvailable and MemTotal") from None
