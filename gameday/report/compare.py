"""Compare a run's durations and verdicts with earlier runs of its plan. Pure: the earlier runs are given."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pydantic import BaseModel, Field

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.report.summary import DurationKind, RunDuration, Summary

FEWEST_RUNS = 3
"""Fewer sound earlier measurements of a duration than this show no regression: two make no peak."""
OVER_PEAK = 0.05
"""A duration that is longer than the slowest earlier one by this share is a regression: the rule of OpenShift's release
gate for recovery times (openshift/release#54364, krkn#326).
"""
LEAST_S = 0.5
"""Seconds by which a regression must also be above the slowest earlier duration. Half the shortest scrape interval of
the shipped rules: below it, two runs differ by the moment of the sample.
"""


class Trend(BaseModel):
    """A duration over the earlier runs, oldest first; None if a run did not measure it.

    It is compared only with the `sound` ones, those of runs that passed: a failed run's bad time is no standard.
    """

    measure: DurationKind
    now_s: float | None
    previous_s: float | None
    earlier_s: tuple[float | None, ...]
    sound: int = Field(description="how many of the earlier runs passed and measured it within its bound")
    median_s: float | None = Field(description="of the sound ones, as is the slowest")
    slowest_s: float | None
    regressed: bool | None = Field(description="None if too few are sound, or this run did not measure it")


def trends(numbers: Sequence[RunDuration], earlier: Sequence[Summary]) -> tuple[Trend, ...]:
    return tuple(_trend(number, earlier) for number in numbers)


def _trend(number: RunDuration, earlier: Sequence[Summary]) -> Trend:
    past = tuple(summary.seconds_of(number.measure) for summary in earlier)
    sound = [
        one.seconds
        for summary in earlier
        if summary.outcome is RunOutcome.PASSED
        for one in summary.numbers
        if one.measure is number.measure and one.seconds is not None and one.status is not Status.BROKEN
    ]
    slowest = max(sound, default=None)
    return Trend(
        measure=number.measure,
        now_s=number.seconds,
        previous_s=past[-1] if past else None,
        earlier_s=past,
        sound=len(sound),
        median_s=median(sound) if sound else None,
        slowest_s=slowest,
        regressed=is_slower(number.seconds, slowest) if len(sound) >= FEWEST_RUNS else None,
    )


def is_slower(now_s: float | None, than_s: float | None) -> bool | None:
    """Return True if a duration is longer than another by more than OVER_PEAK and LEAST_S; None if one is missing."""
    if now_s is None or than_s is None:
        return None
    return now_s > than_s + max(OVER_PEAK * than_s, LEAST_S)
