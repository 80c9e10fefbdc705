"""Pauses between repeated failures."""

from __future__ import annotations

import random


def pause_s(failures: int, first_s: float, longest_s: float) -> float:
    """Return the seconds to wait after `failures` failures in a row: doubled each time, bounded, and jittered.

    The jitter takes off up to half, so that clients that failed together do not come back together.
    """
    doublings = min(max(failures - 1, 0), 32)  # more do not lengthen the pause, and thousands overflow a float
    return min(first_s * 2.0**doublings, longest_s) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
