"""CPU lists as sysfs and cpuset write them: `0-55,112-167`."""

from __future__ import annotations

from collections.abc import Iterable


def parse_cpus(text: str) -> tuple[int, ...]:
    """The CPUs of a list, in order; an empty list is none. Raises ValueError for what is no list."""
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return tuple(cpus)


def format_cpus(cpus: Iterable[int]) -> str:
    """The shortest list; the inverse of `parse_cpus` for CPUs in order."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
