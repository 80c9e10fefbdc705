"""The cost of the slowest GPU to a job that waits for all its ranks after every step: it sets the pace.

Computed, not measured: the ranks' GEMM rates are those of the probes, every rank does the same work, and a step ends
with its last rank. If a job also waits for its network, the share is that of its computing time. Meta saw one
straggler hold up thousands of GPUs (Grattafiori et al., "The Llama 3 Herd of Models", 2024, section 3.3.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gameday.values.models import FrozenModel

_RANKS = (8, 64, 512, 4096)
"""Sizes of jobs to show, up to the number of GPUs; the whole fleet comes last."""


class JobCost(FrozenModel):
    """The loss of a synchronous job of this many ranks to its slowest GPU."""

    ranks: int
    lost_percent: float
    """Share of the ranks' computing time spent waiting: the mean over all choices of GPUs."""
    lost_gpus: float
    """The same loss as a number of GPUs."""
    lost_percent_without: float | None = None
    """The same share if no straggler is chosen; None if there are none, or too few other GPUs."""


def expected_slowest(rates: Sequence[float], ranks: int) -> float:
    """Return the mean rate of the slowest GPU over every choice of `ranks` GPUs.

    Of n rates in ascending order the i-th (from 0) is the slowest of k chosen with probability C(n-1-i, k-1) / C(n, k).

    Args:
        rates: At least one.
        ranks: 1 to as many as there are rates.
    """
    ascending, n = sorted(rates), len(rates)
    chance, mean = ranks / n, 0.0
    for i, rate in enumerate(ascending[: n - ranks + 1]):
        mean += chance * rate
        if i < n - ranks:
            chance *= (n - ranks - i) / (n - 1 - i)
    return mean


def _lost(rates: Sequence[float], ranks: int) -> float:
    return max(0.0, 1 - expected_slowest(rates, ranks) / fmean(rates))


def job_costs(rates: Sequence[float], without: Sequence[float]) -> tuple[JobCost, ...]:
    """Return the losses of jobs of several sizes.

    Args:
        rates: The GEMM rate of every GPU.
        without: The rates of those GPUs that are not stragglers.
    """
    if len(rates) < _RANKS[0]:
        return ()
    sizes = [size for size in _RANKS if size < len(rates)] + [len(rates)]
    costs = []
    for size in sizes:
        lost = _lost(rates, size)
        fewer = min(size, len(without))
        better = _lost(without, fewer) if len(without) < len(rates) and fewer else None
        costs.append(
            JobCost(
                ranks=size,
                lost_percent=100 * lost,
                lost_gpus=size * lost,
                lost_percent_without=None if better is None else 100 * better,
            )
        )
    return tuple(costs)
