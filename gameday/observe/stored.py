"""What Prometheus stored in a window, sample by sample.

A range query would say each scrape again at every step until the next one: its
rows are no samples, and what is counted of them (gaps, a baseline's spread) is
of the steps and not of the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gameday.cluster.prometheus import Prometheus, Series

MOST_SAMPLES = 300_000
"""Eight GPUs with the metrics a run keeps, for the longest window of a post-mortem (a day), at a scrape every 15 s, are
276,480. They take 160 MB and 3 s of processor while they are read, as measured."""


@dataclass(frozen=True)
class Stored:
    """`step_s` None: every sample there is, with its own time; else the newest at or before each of such steps."""

    query: str
    series: list[Series]
    step_s: float | None


def stored(prometheus: Prometheus, names: Sequence[str], matchers: str, start: datetime, end: datetime) -> Stored:
    """The samples of the metrics `names` with `matchers` (as in PromQL's braces); raises AdapterError.

    Two requests, whatever the number of series; three where there are more
    than MOST_SAMPLES. Then they are resampled at steps no finer than the usual
    scrape, so that there are about MOST_SAMPLES and few are told twice.
    """
    selector = f'{{__name__=~"{"|".join(names)}",{matchers}}}' if len(names) > 1 else f"{names[0]}{{{matchers}}}"
    window = f"{max(1, round((end - start).total_seconds() * 1000))}ms"
    # One by one: counted together they would be alike, because counting drops their names, and Prometheus refuses.
    counted = [f"(sum(count_over_time({name}{{{matchers}}}[{window}])) or vector(0))" for name in names]
    (samples,) = prometheus.query(" + ".join(counted), end)
    if samples.value <= MOST_SAMPLES:
        return Stored(selector, prometheus.stored_samples(selector, end - start, end), None)
    (series,) = prometheus.query(f"count(last_over_time({selector}[{window}]))", end)
    step = (end - start) * (series.value / MOST_SAMPLES)
    return Stored(selector, prometheus.query_range(selector, start, end, step), step.total_seconds())
