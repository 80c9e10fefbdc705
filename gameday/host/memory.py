"""The memory that programs can still get on this machine, and the shares below which our own programs end.

A load ends before the game-day, the game-day before its virtual cluster, and all of them long before the kernel has to
choose what to kill. A container's limit counts like the machine's memory; the smaller share decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gameday.errors import HostError

LOADS_NEED = 0.15
"""Share of the memory below which a load ends."""
GAME_DAYS_NEED = 0.10
"""Share below which a game-day of a rehearsal ends, and undoes its fault.

It is earlyoom's default for its SIGTERM (earlyoom(1), -m): at 10 % it is time to ask a program to end."""
CLUSTERS_NEED = 0.05
"""Share below which a virtual cluster ends at once, even during a run; earlyoom's default for its SIGKILL."""
MEMINFO = Path("/proc/meminfo")
"""The kernel's figures. In a container they are still those of the whole machine."""
OWN_GROUP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")
"""The mount of control groups, version 2. If version 1 limits memory, it has no memory.max."""


@dataclass(frozen=True)
class Memory:
    """The memory of a machine, or of a control group with a limit, in bytes."""

    free: int
    total: int
    owner: str

    @property
    def share(self) -> float:
        """The share that programs can still get, 0 to 1."""
        return self.free / self.total

    def __str__(self) -> str:
        return f"{self.free / 2**30:.1f} of {self.owner}'s {gib(self.total)} free, {self.share:.1%}"


def free_memory() -> Memory:
    """Return the memory of the machine or of a control group of ours, the one that leaves less. Raises HostError."""
    return min(_memories(), key=lambda memory: memory.share)


def why_too_large(needed: int) -> str:
    """Return why this many bytes do not fit here; empty if they do. Raises HostError.

    The share LOADS_NEED has to stay free: below it a load would end half-way.
    """
    for memory in _memories():
        kept = round(LOADS_NEED * memory.total)
        if needed + kept > memory.free:
            return (
                f"it takes {gib(needed)} of memory, {gib(kept)} ({LOADS_NEED:.0%} of {memory.owner}'s) must stay free"
                f" beside it, and {gib(memory.free)} are free"
            )
    return ""


def gib(size: int) -> str:
    """Return a number of bytes in words."""
    return f"{size / 2**30:.1f} GiB"


def _memories() -> list[Memory]:
    return [_of_machine(), *_of_groups()]


def _of_machine() -> Memory:
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
        kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        free, total = kib["MemAvailable"] * 1024, kib["MemTotal"] * 1024
    except (OSError, ValueError, IndexError, KeyError):
        total = 0
    if not total:
        raise HostError(f"cannot read how much memory is free: {MEMINFO} has no MemAvailable and MemTotal")
    return Memory(free, total, "this machine")


def _of_groups() -> Iterator[Memory]:
    """Read our control group and its parents; skip those without a limit, or that we cannot see."""
    try:
        lines = OWN_GROUP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    own = next((GROUPS / line.removeprefix("0::/") for line in lines if line.startswith("0::/")), GROUPS)
    for group in (own, *own.parents):
        if group.is_relative_to(GROUPS) and (memory := _of_group(group)):
            yield memory


def _of_group(group: Path) -> Memory | None:
    """Return what a group may still use. As for the kubelet, caches that the kernel drops first count as free."""
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        facts = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        droppable = int(facts["inactive_file"])
    except (OSError, ValueError, KeyError):  # "max" is no number: no limit
        return None
    return Memory(max(0, limit - used + droppable), limit, "this container") if limit else None
