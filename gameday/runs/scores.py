"""Score a detector by its plays: recall, wrong actions, clearing, latency, and points, with intervals. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean

from pydantic import Field

from gameday.runs.pages import PageModel

RESAMPLES = 1000
"""Bootstrap samples: the usual number for the ends of a 95 % interval (Efron and Tibshirani, An Introduction to the
Bootstrap, 1993)."""
_SEED = 1
_LOW, _HIGH = 0.025, 0.975
"""The ends of a 95 % interval."""


@dataclass(frozen=True)
class Play:
    """A play of a case that counts."""

    case: str
    must_act: bool
    acted: bool
    """True if the detector called the node broken, or took it out of service."""
    seconds: float | None
    """Time from the fault going in to the detector's first own signal; None if none came."""
    cleared: bool | None
    """True if nothing of what it claimed stands after the repair; None if it claimed nothing, or nobody repaired."""


class Estimate(PageModel):
    """A figure of plays with its 95 % interval; None where no play tells it."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    of: int = Field(default=0, description="plays that tell it")


class Score(PageModel):
    """The figures of a detector, or of one of its cells."""

    recall: Estimate = Field(description="acted, of plays in which somebody must act; the mean over the cases")
    wrong: Estimate = Field(description="acted, of plays in which nobody must act; the mean over the cases")
    cleared: Estimate = Field(description="nothing stood after the repair, of plays in which it rightly acted")
    p50: Estimate = Field(description="seconds to the first own signal, where somebody must act")
    p95: Estimate
    worst: Estimate = Field(description="the longest of them; a resample cannot exceed it, so it is also `high`")
    points: Estimate = Field(description="recall - wrong_costs * wrong: Youden's J, weighted")


def score(plays: Sequence[Play], wrong_costs: float) -> Score:
    """Return the figures of the plays that count.

    Intervals are percentiles of RESAMPLES bootstrap samples: cases are drawn with replacement, and of each drawn case
    its plays, because plays of one case are not independent.

    Args:
        plays: The plays; each case's lie together or not.
        wrong_costs: The cost of a wrong action, in missed faults.
    """
    act, leave = _by_case(plays, must_act=True), _by_case(plays, must_act=False)
    repaired = [[one for one in case if one.acted and one.cleared is not None] for case in act]
    timed = [[one for one in case if one.seconds is not None] for case in act]
    return Score(
        recall=_estimate(_share_acted, act),
        wrong=_estimate(_share_acted, leave),
        cleared=_estimate(lambda cases: fmean(bool(one.cleared) for one in chain(*cases)), repaired),
        p50=_estimate(lambda cases: _quantile(_seconds(cases), 0.5), timed),
        p95=_estimate(lambda cases: _quantile(_seconds(cases), 0.95), timed),
        worst=_estimate(lambda cases: max(_seconds(cases)), timed),
        points=_points(act, leave, wrong_costs),
    )


Cases = Sequence[Sequence[Play]]


def _by_case(plays: Sequence[Play], *, must_act: bool) -> list[list[Play]]:
    found: dict[str, list[Play]] = {}
    for one in plays:
        if one.must_act is must_act:
            found.setdefault(one.case, []).append(one)
    return list(found.values())


def _share_acted(cases: Cases) -> float:
    return fmean(fmean(one.acted for one in case) for case in cases)


def _seconds(cases: Cases) -> list[float]:
    return sorted(one.seconds for one in chain(*cases) if one.seconds is not None)


def _points(act: Cases, leave: Cases, wrong_costs: float) -> Estimate:
    """Return recall less weighted wrong actions; no figure unless both kinds of cases were played."""
    if not act or not leave:
        return Estimate()
    draw = random.Random(_SEED)  # noqa: S311 - a stated, repeatable choice
    drawn = [
        _share_acted(_resampled(act, draw)) - wrong_costs * _share_acted(_resampled(leave, draw))
        for _ in range(RESAMPLES)
    ]
    value = _share_acted(act) - wrong_costs * _share_acted(leave)
    return _between(value, drawn, sum(map(len, (*act, *leave))))


def _estimate(figure: Callable[[Cases], float], cases: Cases) -> Estimate:
    cases = [case for case in cases if case]
    if not cases:
        return Estimate()
    draw = random.Random(_SEED)  # noqa: S311 - a stated, repeatable choice
    return _between(figure(cases), [figure(_resampled(cases, draw)) for _ in range(RESAMPLES)], sum(map(len, cases)))


def _between(value: float, drawn: Sequence[float], of: int) -> Estimate:
    ordered = sorted(drawn)
    return Estimate(value=value, low=_quantile(ordered, _LOW), high=_quantile(ordered, _HIGH), of=of)


def _resampled(cases: Cases, draw: random.Random) -> list[list[Play]]:
    return [draw.choices(case, k=len(case)) for case in draw.choices(cases, k=len(cases))]


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which a share of the ordered ones lies, between its neighbours (Hyndman and Fan, 7)."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
