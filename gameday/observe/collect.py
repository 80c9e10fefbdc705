"""Fill the frames once, at the end: range queries over the whole run cost less than watching it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pandas as pd

from gameday.cluster.http import AdapterError
from gameday.cluster.prometheus import Series
from gameday.history.events import AlertSeen, FaultInjected
from gameday.history.frames import Frames, conform
from gameday.observe.alerts import node_of
from gameday.observe.dcgm import METRICS
from gameday.observe.metrics import metrics_frame
from gameday.run.context import Run

# Enough points for a chart as wide as a page, whatever the run's length.
_POINTS = 300
_FINEST = timedelta(milliseconds=500)
_LONGEST_LOG = 1000


def collect(run: Run) -> Frames:
    """Metrics, alerts and log lines of the targets from the baseline's start until now.

    A server that does not answer costs its own frame, not the others.
    """
    frames = Frames()
    if not run.targets:
        return frames
    start, end = run.started - run.plan.baseline.window, datetime.now(UTC)
    step = max(_FINEST, (end - start) / _POINTS)
    for name, fill in (("metrics", _metrics), ("alerts", _alerts), ("logs", _logs)):
        try:
            setattr(frames, name, fill(run, start, end, step))
        except AdapterError as error:
            run.problem(f"frame {name} is missing: {error}")
    return frames


def _metrics(run: Run, start: datetime, end: datetime, step: timedelta) -> pd.DataFrame:
    label = run.profile.prometheus_node_label
    nodes = "|".join(target.node.replace(".", r"\\.") for target in run.targets)
    query = f'{{__name__=~"{"|".join(METRICS)}",{label}=~"{nodes}"}}'
    return metrics_frame(run.servers.prometheus.query_range(query, start, end, step), node_label=label)


def _alerts(run: Run, start: datetime, end: datetime, step: timedelta) -> pd.DataFrame:
    series = run.servers.prometheus.query_range("ALERTS", start, end, step)
    _note_missed(run, series)
    rows: list[dict[str, object]] = [
        {
            "time": pd.Timestamp(at),
            "alert": one.labels.get("alertname", ""),
            "state": one.labels.get("alertstate", ""),
            "node": node_of(run, one.labels) or "",
            "severity": one.labels.get("severity", ""),
        }
        for one in series
        for at, _ in one.points
    ]
    return conform("alerts", rows)


def _note_missed(run: Run, series: list[Series]) -> None:
    """Alerts that came and went between our looks still belong into the history."""
    history = run.journal.history()
    known = {json.dumps(seen.labels, sort_keys=True) for seen in history.of(AlertSeen) if seen.state != "resolved"}
    injected = min((f.written_at for f in history.of(FaultInjected)), default=datetime.now(UTC))
    for one in series:
        labels = {key: value for key, value in one.labels.items() if key != "alertstate"}
        if one.labels.get("alertstate") != "firing" or not one.points or json.dumps(labels, sort_keys=True) in known:
            continue
        run.note(
            AlertSeen(
                alert=labels.get("alertname", ""),
                state="firing",
                labels=labels,
                node=node_of(run, labels),
                expected=False,
                at=one.points[0][0],
                at_baseline=one.points[0][0] < injected,
            )
        )


def _logs(run: Run, start: datetime, end: datetime, step: timedelta) -> pd.DataFrame:
    rows: list[dict[str, object]] = []
    for target in run.targets:
        lines = run.servers.loki.node_lines(target.node, containing="", start=start, end=end)
        rows += [
            {"time": pd.Timestamp(line.at), "node": target.node, "line": line.text} for line in lines[-_LONGEST_LOG:]
        ]
    return conform("logs", rows)
