"""Score a detector by its plays: recall, wrong actions, clearing, latency, and points, with intervals. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

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
    draw = random.Random(_SEED)  # noqa: S311 - a stated, repeatable choice
    drawn = [_figures(_resampled(act, draw), _resampled(leave, draw), wrong_costs) for _ in range(RESAMPLES)]
    counts = _Figures(
        recall=sum(map(len, act)),
        wrong=sum(map(len, leave)),
        cleared=sum(one.cleared is not None for one in chain(*act) if one.acted),
        p50=len(_seconds(act)),
        p95=len(_seconds(act)),
        worst=len(_seconds(act)),
        points=len(plays),
    )
    columns = zip(_Figures._fields, _figures(act, leave, wrong_costs), zip(*drawn, strict=True), counts, strict=True)
    return Score(**{name: _between(value, some, int(of or 0)) for name, value, some, of in columns})


Cases = Sequence[Sequence[Play]]


class _Figures(NamedTuple):
    """The figures of a sample of plays; None where no play tells one."""

    recall: float | None
    wrong: float | None
    cleared: float | None
    p50: float | None
    p95: float | None
    worst: float | None
    points: float | None


def _figures(act: Cases, leave: Cases, wrong_costs: float) -> _Figures:
    recall, wrong = _share_acted(act), _share_acted(leave)
    cleared = [one.cleared for one in chain(*act) if one.acted and one.cleared is not None]
    seconds = _seconds(act)
    return _Figures(
        recall=recall,
        wrong=wrong,
        cleared=sum(cleared) / len(cleared) if cleared else None,
        p50=_quantile(seconds, 0.5) if seconds else None,
        p95=_quantile(seconds, 0.95) if seconds else None,
        worst=seconds[-1] if seconds else None,
        points=None if recall is None or wrong is None else recall - wrong_costs * wrong,
    )


def _by_case(plays: Sequence[Play], *, must_act: bool) -> list[list[Play]]:
    found: dict[str, list[Play]] = {}
    for one in plays:
        if one.must_act is must_act:
            found.setdefault(one.case, []).append(one)
    return list(found.values())


def _share_acted(cases: Cases) -> float | None:
    """Return the mean over the cases of the share of plays in which the detector acted."""
    return sum(sum(one.acted for one in case) / len(case) for case in cases) / len(cases) if cases else None


def _seconds(cases: Cases) -> list[float]:
    return sorted(one.seconds for one in chain(*cases) if one.seconds is not None)


def _resampled(cases: Cases, draw: random.Random) -> list[list[Play]]:
    return [draw.choices(case, k=len(case)) for case in draw.choices(cases, k=len(cases))] if cases else []


def _between(value: float | None, drawn: Sequence[float | None], of: int) -> Estimate:
    if value is None:
        return Estimate()
    ordered = sorted(one for one in drawn if one is not None)
    return Estimate(value=value, low=_quantile(ordered, _LOW), high=_quantile(ordered, _HIGH), of=of)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which a share of the ordered ones lies, between its neighbours (Hyndman and Fan, 7)."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
