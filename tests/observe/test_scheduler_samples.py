"""The frame `scheduler`: a row per sample, with the bucket in a column of its own."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from gameday.cluster.prometheus import Series
from gameday.history.frames import frame_of
from gameday.observe.api_server_metrics import SCHEDULING_SECONDS
from gameday.observe.scheduler_samples import scheduler_columns

AT = datetime(2026, 11, 23, 12, tzinfo=UTC)


def test_a_bucket_keeps_its_bound_and_its_other_labels() -> None:
    labels = {"job": "kube-scheduler", "instance": "kube-scheduler-topology", "le": "0.02", "attempts": "1"}
    points = ((AT, 3.0), (AT + timedelta(seconds=5), math.nan))
    columns = scheduler_columns([Series(f"{SCHEDULING_SECONDS.name}_bucket", labels, points)])
    (row,) = frame_of("scheduler", columns).to_dict("records")
    assert (row["server"], row["le"], row["labels"], row["value"]) == (labels["instance"], "0.02", "attempts=1", 3.0)
