"""The progress of work that has many parts, in words for a line of the terminal."""

from __future__ import annotations


def how_far(done: int, total: int, left_s: float) -> str:
    """Return it as `12 of 76, about 9 minutes left`; without the time after the last part.

    Args:
        done: Parts that have ended.
        total: All parts.
        left_s: Seconds that the others will take, by those that have ended.
    """
    if done >= total:
        return f"{done} of {total}"
    minutes = round(left_s / 60)
    left = "less than a minute" if minutes < 1 else f"about {minutes} minute{'' if minutes == 1 else 's'}"
    return f"{done} of {total}, {left} left"
