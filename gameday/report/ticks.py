"""Round positions on an axis, and their labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


def nice_step(width: float, about: int) -> float:
    """Return 1, 2 or 5 times a power of ten, so that `width` has about this many steps."""
    raw = width / about
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * n for n in (1, 2, 5, 10) if raw <= power * n * 1.0001)


def time_ticks(start_s: float, end_s: float) -> Iterator[Tick]:
    """Yield about five ticks: `T`, `+5 s`, `−2 min`."""
    width = end_s - start_s
    step = next((float(n) for n in _TIME_STEPS if width / n <= 6), nice_step(width / 86400, 5) * 86400)
    step = nice_step(width, 6) if width < 4 else step
    unit, of = (1, "s") if step < 60 else (60, "min") if step < 3600 else (3600, "h") if step < 86400 else (86400, "d")
    for n in range(math.ceil(start_s / step - 1e-9), math.floor(end_s / step + 1e-9) + 1):
        at = n * step
        yield Tick(at, "T" if n == 0 else f"{'−' if at < 0 else '+'}{abs(at) / unit:g} {of}")
