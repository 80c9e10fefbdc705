"""The progress of work in many parts, as words for a line of the terminal."""

from __future__ import annotations


def how_far(done: int, total: int, left_s: float) -> str:
    """Return the progress, like `12 of 76, about 9 minutes left`; without the time once all parts have ended.

    Args:
        done: Number of parts that have ended.
        total: Number of all parts.
        left_s: Estimated seconds for the others, from those that have ended.
    """
    if done >= total:
        return f"{done} of {total}"
    minutes = round(left_s / 60)
    left = "less than a minute" if minutes < 1 else f"about {minutes} minute{'' if minutes == 1 else 's'}"
    return f"{done} of {total}, {left} left"
