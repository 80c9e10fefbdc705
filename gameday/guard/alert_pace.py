"""Estimate how soon an alert can fire here: its series are scraped, its rule is evaluated, and its `for` passes."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from gameday.cluster.prometheus import Prometheus, RuleGroup
from gameday.guard.rule_series import RuleSeries

_LOOK_BACK = timedelta(minutes=5)
"""Time that contains two scrapes of any usual exporter: Prometheus itself forgets a series after five minutes."""


@dataclass(frozen=True)
class AlertPace:
    """The times of an alert's quickest rule."""

    scrape_s: float | None
    """Seconds between two scrapes of its slowest series; None if none is scraped now."""
    evaluate_s: float
    hold_s: float

    @property
    def soonest_s(self) -> float:
        """The least time from the fault to the alert, if a scrape and an evaluation come right after the fault."""
        return math.ceil(self.hold_s / self.evaluate_s) * self.evaluate_s

    @property
    def latest_s(self) -> float:
        """The longest time if nothing is late: a scrape and an evaluation came right before the fault."""
        return (self.scrape_s or 0.0) + self.evaluate_s + self.soonest_s

    def __str__(self) -> str:
        evaluated = f"evaluated every {self.evaluate_s:g} s, for {self.hold_s:g} s"
        if self.scrape_s is None:
            return f"no series of it is scraped now, so it is unknown when it fires; {evaluated}"
        return (
            f"scraped every {self.scrape_s:.3g} s, {evaluated}: "
            f"fires {self.soonest_s:.3g} to {self.latest_s:.3g} s after the fault"
        )


def pace_of(prometheus: Prometheus, series: RuleSeries, alert: str, now: datetime) -> AlertPace | None:
    """Return the pace of an alert's quickest rule; None if no rule has the name.

    Raises:
        AdapterError: Prometheus cannot be asked.
    """
    paces = [_pace(prometheus, series, group, alert, now) for group in prometheus.rule_groups()]
    return min((pace for pace in paces if pace), key=lambda pace: pace.latest_s, default=None)


def _pace(prometheus: Prometheus, series: RuleSeries, group: RuleGroup, alert: str, now: datetime) -> AlertPace | None:
    rules = [rule for rule in group.rules if rule.name == alert]
    if not rules:
        return None
    quickest = min(rules, key=lambda rule: rule.hold_s)
    every = [found for metric in series.metrics(quickest.query) if (found := _scraped_every_s(prometheus, metric, now))]
    return AlertPace(max(every, default=None), group.interval_s, quickest.hold_s)


def _scraped_every_s(prometheus: Prometheus, metric: str, now: datetime) -> float | None:
    """Return the usual interval of scrapes of one target that has the metric; None if it is unknown."""
    found = prometheus.query(f"topk(1, {metric})")
    if not found or not {"job", "instance"} <= found[0].labels.keys():
        return None
    matchers = ",".join(f"{name}={json.dumps(found[0].labels[name])}" for name in ("job", "instance"))
    samples = prometheus.stored_samples(f"up{{{matchers}}}", _LOOK_BACK, now)
    pauses = [(end - begin).total_seconds() for one in samples for (begin, _), (end, _) in pairwise(one.points)]
    return median(pauses) if pauses else None
