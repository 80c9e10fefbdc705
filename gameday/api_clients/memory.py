"""The machine's free memory: a storm ends by itself long before the machine suffers."""

from __future__ import annotations

from pathlib import Path

from gameday.errors import HostError

LEAST_FREE = 0.15
"""Share of the machine's memory below which a storm ends."""
MEMINFO = Path("/proc/meminfo")
"""The kernel's figures; in a container, too, they are the whole machine's."""


def free_share() -> float:
    """Return the share of the machine's memory that programs can still get, 0 to 1. Raises HostError."""
    free, total = _free_and_total()
    return free / total


def why_too_large(needed: int) -> str:
    """Return why the machine cannot hold what takes this many bytes; empty where it can. Raises HostError.

    What a load may not touch is left over: below LEAST_FREE it would end half-way.
    """
    free, total = _free_and_total()
    kept = round(LEAST_FREE * total)
    if needed + kept <= free:
        return ""
    return (
        f"it takes {needed / 2**30:.1f} GiB of memory, {kept / 2**30:.1f} GiB ({LEAST_FREE:.0%} of this machine's) must"
        f" stay free beside it, and {free / 2**30:.1f} GiB are free"
    )


def _free_and_total() -> tuple[int, int]:
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
        kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        free, total = kib["MemAvailable"] * 1024, kib["MemTotal"] * 1024
    except (OSError, ValueError, IndexError, KeyError):
        total = 0
    if not total:
        raise HostError(f"cannot read how much memory is free: {MEMINFO} has no MemAvailable and MemTotal")
    return free, total
