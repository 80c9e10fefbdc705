"""Judge by NVML's figures if a GPU is at rest, and how much a burn drew; tests/host/test_gpu_judging.py tests it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gameday.host.base import GpuSample

OTHERS = 256 << 20
"""Memory that other processes may take or give back meanwhile, bytes."""
WARMER_C, MORE_W, BUSY_PCT = 5.0, 20.0, 5.0
"""The most by which a GPU at rest may differ from the start. Recorded: seven rests within 1 °C and 1 W."""
AT_WORK = 0.5
"""Least share of the highest power of a reading during a burn; recorded: 81 to 138 W before and after one of 693 W."""
SETTLES_S = 2.0
"""Time in which a burn comes to its power; recorded: 1 s, because NVML's watts are a mean of a second."""
BURNS = 0.6
"""Least share of the power limit that a burner draws. Recorded: 0.99; a cooler board may be held by its clock."""
KNOWN_SHARE = (0.9, 1.25)
"""Our power as a share of a known burner's: too little is a bad burn, too much a burner that did not burn. Recorded:
1.00; DCGM's targeted power may aim below the limit."""


@dataclass(frozen=True)
class Shown:
    """A reading during a burn."""

    seconds: float
    watts: float


def why_not_at_rest(now: GpuSample, start: GpuSample) -> str:
    """Return why the GPU is not as idle as it was at the start; empty if it is. An unknown figure does not count."""
    grown = {
        "MiB more in use": ((now.memory_used_bytes or 0) - (start.memory_used_bytes or 0), OTHERS, 1 << 20),
        "W more": ((now.power_w or 0.0) - (start.power_w or 0.0), MORE_W, 1),
        "°C warmer": ((now.temperature_c or 0.0) - (start.temperature_c or 0.0), WARMER_C, 1),
        "% busy": (now.utilization_pct or 0.0, max(BUSY_PCT, start.utilization_pct or 0.0), 1),
    }
    reasons = [f"{by / unit:.0f} {what}" for what, (by, most, unit) in grown.items() if by > most]
    if new := set(now.compute_pids or ()) - set(start.compute_pids or ()):
        reasons.append(f"new compute processes {sorted(new)}")
    return ", ".join(reasons)


def burning(curve: Sequence[Shown]) -> list[Shown]:
    """Return the readings of the burn itself: from when it has settled until its end shows in NVML's mean."""
    most = max((one.watts for one in curve), default=0.0)
    at_work = [one for one in curve if one.watts > AT_WORK * most]
    if not at_work:
        return []
    since, until = at_work[0].seconds + SETTLES_S, at_work[-1].seconds - 1.0
    return [one for one in at_work if since <= one.seconds <= until]


def settled_watts(curve: Sequence[Shown]) -> float:
    """Return the median power of the burn itself. Raises ValueError if fewer than three readings show it."""
    shown = burning(curve)
    if len(shown) < 3:
        raise ValueError(f"{len(shown)} of {len(curve)} readings show a burn that has settled: it was too short")
    return statistics.median(one.watts for one in shown)


def why_not_as_known(watts: float, known_watts: float, limit_w: float | None) -> str:
    """Return why our burn does not hold beside a known burner's; empty if it does."""
    if limit_w and known_watts < BURNS * limit_w:
        return f"the known burner drew {known_watts:.0f} of {limit_w:.0f} W: it did not burn, and proves nothing"
    least, most = KNOWN_SHARE
    share = watts / known_watts
    if not least <= share <= most:
        return (
            f"{watts:.0f} W are {share:.1%} of the known burner's {known_watts:.0f} W, wanted {least:.0%} to {most:.0%}"
        )
    return ""
