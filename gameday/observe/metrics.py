"""What Prometheus told as rows of the `metrics` frame."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from gameday.cluster.prometheus import Series
from gameday.history.frames import conform


def metrics_frame(series: Iterable[Series], *, node_label: str, gpu_label: str = "gpu") -> pd.DataFrame:
    """Rows of time, node, gpu, metric, value, ordered by metric, node, gpu and time.

    `node_label` is the cluster profile's `prometheus_node_label`; a series
    without it has the node "". A series without a name (the result of an
    expression) has the metric "". NaN is how exporters say "no value": such
    points are left out, because absent data is an absent row.
    """
    rows: list[dict[str, object]] = [
        {
            "time": pd.Timestamp(at),
            "node": one.labels.get(node_label, ""),
            "gpu": one.labels.get(gpu_label, ""),
            "metric": one.name,
            "value": value,
        }
        for one in series
        for at, value in one.points
        if not math.isnan(value)
    ]
    return conform("metrics", rows).sort_values(["metric", "node", "gpu", "time"], ignore_index=True)
