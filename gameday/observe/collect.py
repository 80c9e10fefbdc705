"""Fill the frames once, at the end: range queries over the whole run cost less than watching it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pandas as pd

from gameday.cluster.http import AdapterError
from gameday.cluster.prometheus import Series
from gameday.history.events import AlertSeen, FaultInjected, FrameRead, GpusIdentified
from gameday.history.frames import Frames, conform
from gameday.observe.alerts import node_of, siblings_alert
from gameday.observe.dcgm import METRICS, gpus_of
from gameday.observe.metrics import metrics_frame
from gameday.run.context import Run

# Enough points for a chart as wide as a page, whatever the run's length.
_POINTS = 300
_FINEST = timedelta(milliseconds=500)
_LONGEST_LOG = 1000


def collect(run: Run) -> Frames:
    """Metrics, alerts, log lines and pods of the targets from the baseline's start until now.

    A server that does not answer costs its own frame, not the others.
    """
    frames = Frames(pods=conform("pods", run.pod_states.rows()))
    if not run.targets:
        return frames
    start, end = run.started - run.plan.baseline.window, datetime.now(UTC)
    step = max(_FINEST, (end - start) / _POINTS)
    _note_source(run, "pods", "Kubernetes", f"watch of {_targets_pods(run)} and of this run's own", None, frames.pods)
    for name, server, fill in (("metrics", "Prometheus", _metrics), ("alerts", "Prometheus", _alerts)):
        try:
            query, rows = fill(run, start, end, step)
        except AdapterError as error:
            run.problem(f"frame {name} is missing: {error}")
            continue
        setattr(frames, name, rows)
        _note_source(run, name, server, query, step, rows)
    try:
        frames.logs = _logs(run, start, end)
        _note_source(run, "logs", "Loki", f"{run.profile.loki_selector} of each target", None, frames.logs)
    except AdapterError as error:
        run.problem(f"frame logs is missing: {error}")
    return frames


def _targets_pods(run: Run) -> str:
    return "pods with " + " or ".join(f"spec.nodeName={target.node}" for target in run.targets)


def _note_source(run: Run, frame: str, server: str, query: str, step: timedelta | None, rows: pd.DataFrame) -> None:
    """Range queries look back to the baseline's start; `step` None: every row there was."""
    run.note(
        FrameRead(
            frame=frame,
            server=server,
            query=query,
            start=run.started - run.plan.baseline.window if step or frame == "logs" else run.started,
            end=datetime.now(UTC),
            step_s=step.total_seconds() if step else None,
            rows=len(rows),
        )
    )


def _metrics(run: Run, start: datetime, end: datetime, step: timedelta) -> tuple[str, pd.DataFrame]:
    label = run.profile.prometheus_node_label
    nodes = "|".join(target.node.replace(".", r"\\.") for target in run.targets)
    query = f'{{__name__=~"{"|".join(METRICS)}",{label}=~"{nodes}"}}'
    series = run.servers.prometheus.query_range(query, start, end, step)
    for target in run.targets:
        if gpus := gpus_of(one.labels for one in series if one.labels.get(label) == target.node):
            run.note(GpusIdentified(node=target.node, gpus=gpus))
    return query, metrics_frame(series, node_label=label)


def _alerts(run: Run, start: datetime, end: datetime, step: timedelta) -> tuple[str, pd.DataFrame]:
    query = "ALERTS"
    series = run.servers.prometheus.query_range(query, start, end, step)
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
    return query, conform("alerts", rows)


def _note_missed(run: Run, series: list[Series]) -> None:
    """Alerts that came and went between our looks still belong into the history."""
    history = run.journal.history()
    known = {json.dumps(seen.labels, sort_keys=True) for seen in history.of(AlertSeen) if seen.state != "resolved"}
    injected = min((f.written_at for f in history.of(FaultInjected)), default=datetime.now(UTC))
    for one in series:
        labels = {key: value for key, value in one.labels.items() if key != "alertstate"}
        if one.labels.get("alertstate") != "firing" or not one.points or json.dumps(labels, sort_keys=True) in known:
            continue
        if siblings_alert(run, labels.get("alertname", ""), node_of(run, labels)):
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


def _logs(run: Run, start: datetime, end: datetime) -> pd.DataFrame:
    rows: list[dict[str, object]] = []
    for target in run.targets:
        lines = run.servers.loki.node_lines(target.node, containing="", start=start, end=end)
        rows += [
            {"time": pd.Timestamp(line.at), "node": target.node, "line": line.text} for line in lines[-_LONGEST_LOG:]
        ]
    return conform("logs", rows)
