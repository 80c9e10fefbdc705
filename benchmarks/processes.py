"""The processes of a rehearsal, read from /proc while it runs: their processor time and their memory, by part."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gameday.processes.children import cpu_seconds
from gameday_rehearsal.nodes import guest_launcher

_EVERY_S = 0.5
_GUEST_LAUNCHER = Path(guest_launcher.__file__).name


class Part(StrEnum):
    """A part of a rehearsal's processes."""

    GUESTS = "guests"
    """Real detectors, with their launchers and all that they start."""
    OTHERS = "others"


@dataclass(frozen=True)
class Seen:
    """A process at one moment."""

    pid: int
    part: Part
    cpu_s: float
    memory: int
    """Resident, in bytes; pages that several processes share count in each."""


@dataclass
class PartsCost:
    """The cost of each part, up to now."""

    peak_memory: dict[Part, int] = field(default_factory=dict)
    """The most that the part's processes had together, in bytes."""
    _cpu_s: dict[tuple[int, Part], float] = field(default_factory=dict)

    def take(self, seen: Iterable[Seen]) -> None:
        """Note all processes of one moment."""
        memory: defaultdict[Part, int] = defaultdict(int)
        for one in seen:
            memory[one.part] += one.memory
            self._cpu_s[one.pid, one.part] = one.cpu_s
        for part, sum_of_part in memory.items():
            self.peak_memory[part] = max(self.peak_memory.get(part, 0), sum_of_part)

    def cpu_s(self, part: Part) -> float:
        """Return the processor time of all processes that the part ever had, up to when each was last seen."""
        return sum(seconds for (_, own), seconds in self._cpu_s.items() if own is part)


class Watched:
    """The cost of a process and of all its descendants by part, followed in a thread until `stop`."""

    def __init__(self, pid: int) -> None:
        self.cost = PartsCost()
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ended.wait(_EVERY_S):
            commands = {pid: command for pid in tree(self._pid) if (command := _command(pid))}
            guests = tree(*(pid for pid, command in commands.items() if _GUEST_LAUNCHER in command))
            self.cost.take(
                Seen(pid, Part.GUESTS if pid in guests else Part.OTHERS, cpu_seconds(pid), resident(pid))
                for pid in commands
            )


def tree(*roots: int) -> set[int]:
    """Return processes and all their descendants."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children[parent].append(int(entry.name))
    found, open_ = set(), list(roots)
    while open_:
        pid = open_.pop()
        found.add(pid)
        open_ += children.get(pid, [])
    return found


def resident(pid: int) -> int:
    """Return a process's resident memory in bytes; 0 for one that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
