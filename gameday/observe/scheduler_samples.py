"""The schedulers' metrics over a run, as the rows of the frame `scheduler`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

from gameday.cluster.prometheus import Prometheus, Series
from gameday.history.frames import Columns, columns_of
from gameday.observe.api_server_metrics import SCHEDULER_JOB, SCHEDULER_METRICS, SERVER_LABEL
from gameday.observe.samples import FrameRows, read_samples

_OF_THE_SCRAPE = {"__name__", "job", SERVER_LABEL}


def read_scheduler(prometheus: Prometheus, start: datetime, end: datetime) -> FrameRows:
    """Read the schedulers' own metrics in a window as the frame `scheduler`, histograms with their buckets.

    Args:
        prometheus: The server; without the job `kube-scheduler` there are no rows.
        start: Beginning of the window.
        end: End of the window.

    Raises:
        AdapterError: Prometheus cannot be asked.
    """
    names = tuple(name for metric in SCHEDULER_METRICS for name in metric.series)
    found = read_samples(prometheus, names, f'job="{SCHEDULER_JOB}"', start, end)
    return FrameRows(scheduler_columns(found.series), found.query, found.step_s)


def scheduler_columns(series: Iterable[Series]) -> Columns:
    """Return the columns of the frame `scheduler`; NaN is left out."""
    columns = columns_of("scheduler")
    for one in series:
        labels = sorted((name, text) for name, text in one.labels.items() if name not in _OF_THE_SCRAPE)
        for at, value in one.points:
            if not math.isnan(value):
                columns["time"].append(at)
                columns["server"].append(one.labels.get(SERVER_LABEL, ""))
                columns["metric"].append(one.name)
                columns["le"].append(one.labels.get("le", ""))
                columns["labels"].append(",".join(f"{name}={text}" for name, text in labels if name != "le"))
                columns["value"].append(value)
    return columns
