"""The API servers' metrics over a run, as the rows of the frame `api_server`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime

from gameday.cluster.prometheus import Prometheus, Series
from gameday.history.frames import Columns, columns_of
from gameday.observe.api_server_metrics import API_SERVER_JOB, API_SERVER_METRICS, SERVER_LABEL, Metric
from gameday.observe.samples import FrameRows, read_samples

_LABELS = ("priority_level", "flow_schema", "verb", "group", "resource", "code")
"""The labels that have a column of their own."""
_OF_THE_SCRAPE = {"__name__", "job", SERVER_LABEL}


def read_api_server(prometheus: Prometheus, start: datetime, end: datetime) -> FrameRows:
    """Read the API servers' own metrics in a window, as the frame `api_server`.

    Gauges that a check looks at scrape by scrape (memory, seats, queues) are read apart from the many counters by
    request, which would thin them out; each part has at most about MOST_SAMPLES rows. Histograms come without buckets.

    Args:
        prometheus: The server; a cluster that does not scrape its API servers under the job `apiserver` has no rows.
        start: Beginning of the window.
        end: End of the window.

    Raises:
        AdapterError: Prometheus cannot be asked.
    """
    wide = [metric for metric in API_SERVER_METRICS if _is_wide(metric)]
    parts = [[metric for metric in API_SERVER_METRICS if metric not in wide], wide]
    matchers = f'job="{API_SERVER_JOB}"'
    found = [read_samples(prometheus, _names(part), matchers, start, end) for part in parts]
    steps = [part.step_s for part in found if part.step_s is not None]
    rows = api_server_columns(series for part in found for series in part.series)
    return FrameRows(rows, " and ".join(part.query for part in found), max(steps, default=None))


def api_server_columns(series: Iterable[Series]) -> Columns:
    """Return the columns of the frame `api_server`, without the NaN of absent values."""
    columns = columns_of("api_server")
    for one in series:
        points = [(at, value) for at, value in one.points if not math.isnan(value)]
        columns["time"] += [at for at, _ in points]
        columns["value"] += [value for _, value in points]
        for column, text in _constant(one.name, one.labels).items():
            columns[column] += [text] * len(points)
    return columns


def _is_wide(metric: Metric) -> bool:
    """Return True if the metric has a series for each kind of request or resource, or for each level's kind of work."""
    return bool({"resource", "execute", "type"} & set(metric.labels))


def _names(metrics: Iterable[Metric]) -> tuple[str, ...]:
    return tuple(name for metric in metrics for name in metric.series if not name.endswith("_bucket"))


def _constant(metric: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that are equal in all rows of a series."""
    others = {label: text for label, text in labels.items() if label not in {*_LABELS, *_OF_THE_SCRAPE}}
    return {
        "server": labels.get(SERVER_LABEL, ""),
        "metric": metric,
        **{label: labels.get(label, "") for label in _LABELS},
        "labels": ",".join(f"{label}={text}" for label, text in sorted(others.items())),
    }
