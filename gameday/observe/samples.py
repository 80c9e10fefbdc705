"""The samples that Prometheus stored in a window, and the columns of the frame `metrics` made of them.

A range query would repeat each sample at every step until the next one, and what is counted (gaps, a baseline's
spread) would then be about the steps and not about the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from gameday.cluster.prometheus import Prometheus, Series
from gameday.history.frames import Columns, columns_of

MOST_SAMPLES = 300_000
"""Most samples in one answer. Eight GPUs with the metrics that a run keeps, scraped every 15 s over a post-mortem's
longest window (a day), make 276,480, which were measured to take 160 MB and 3 s of processor time to read."""


@dataclass(frozen=True)
class StoredSamples:
    """The samples that `read_samples` returns."""

    query: str
    series: list[Series]
    step_s: float | None
    """Seconds between steps, each with the newest sample at or before it; None: every sample, with its own time."""


@dataclass(frozen=True)
class FrameRows:
    """The samples of a window as the rows of a frame."""

    rows: Columns
    query: str
    step_s: float | None
    """The widest step between samples in seconds; None: every sample, with its own time."""


def read_samples(
    prometheus: Prometheus, names: Sequence[str], matchers: str, start: datetime, end: datetime
) -> StoredSamples:
    """Read the samples of several metrics in a window.

    This takes two requests for any number of series. If there are more than MOST_SAMPLES it takes a third, which thins
    them out to about MOST_SAMPLES, at steps no finer than the usual scrape.

    Args:
        prometheus: The server.
        names: Names of the metrics.
        matchers: Label matchers as in PromQL's braces; empty for none.
        start: Beginning of the window.
        end: End of the window.

    Raises:
        AdapterError: Prometheus cannot be asked.
    """
    selector = f'{{__name__=~"{"|".join(names)}",{matchers}}}' if len(names) > 1 else f"{names[0]}{{{matchers}}}"
    window = f"{max(1, round((end - start).total_seconds() * 1000))}ms"
    # Counting drops the names, so two metrics counted together would have the same labels, which Prometheus refuses.
    counted = [f"(sum(count_over_time({name}{{{matchers}}}[{window}])) or vector(0))" for name in names]
    (samples,) = prometheus.query(" + ".join(counted), end)
    if samples.value <= MOST_SAMPLES:
        return StoredSamples(selector, prometheus.stored_samples(selector, end - start, end), None)
    (series,) = prometheus.query(f"count(last_over_time({selector}[{window}]))", end)
    step = (end - start) * (series.value / MOST_SAMPLES)
    return StoredSamples(selector, prometheus.query_range(selector, start, end, step), step.total_seconds())


def metrics_columns(series: Iterable[Series], *, node_label: str) -> Columns:
    """Return the columns of the frame `metrics`: time, node, gpu, metric, value.

    NaN is how exporters say "no value", so such points are left out: absent data is an absent row.

    Args:
        series: The series. One without a name, such as the result of an expression, has the metric "".
        node_label: The cluster profile's `prometheus_node_label`; a series without it has the node "".
    """
    return columns_of(
        "metrics",
        (
            {
                "time": at,
                "node": one.labels.get(node_label, ""),
                "gpu": one.labels.get("gpu", ""),
                "metric": one.name,
                "value": value,
            }
            for one in series
            for at, value in one.points
            if not math.isnan(value)
        ),
    )
