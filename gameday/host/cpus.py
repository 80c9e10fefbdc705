"""Lists of CPUs in the format of sysfs and cpuset: `0-55,112-167`."""

from __future__ import annotations

from collections.abc import Iterable


def parse_cpus(text: str) -> tuple[int, ...]:
    """Return the CPUs of a list in the list's order; none for an empty text.

    Raises:
        ValueError: The text is not a list of CPUs.
    """
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return tuple(cpus)


def format_cpus(cpus: Iterable[int]) -> str:
    """Return the shortest list of these CPUs; the inverse of `parse_cpus` for CPUs in ascending order."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
