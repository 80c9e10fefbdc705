"""Fill the frames once, at the end: asking for the whole run costs less than watching it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial

import pandas as pd

from gameday.cluster.http import AdapterError
from gameday.cluster.prometheus import Series
from gameday.history.events import AlertSeen, FaultInjected, FrameRead, GpusIdentified
from gameday.history.frames import Frames, conform
from gameday.observe.alerts import is_background, node_of, siblings_alert, wanted_of
from gameday.observe.dcgm import METRICS, gpus_of
from gameday.observe.metrics import metrics_frame
from gameday.observe.stored import Stored, stored
from gameday.run.context import Run

_LONGEST_LOG = 1000


def collect(run: Run) -> Frames:
    """Metrics, alerts, log lines and pods of the targets from the baseline's start until now.

    A server that does not answer costs its own frame, not the others.
    """
    frames = Frames(pods=conform("pods", run.pod_states.rows()))
    if not run.targets:
        return frames
    start, end = run.started - run.plan.baseline.window, datetime.now(UTC)
    read = partial(FrameRead, start=start, end=end, step_s=None)
    watch = f"watch of {_targets_pods(run)} and of this run's own"
    run.note(read(frame="pods", server="Kubernetes", query=watch, start=run.started, rows=len(frames.pods)))
    for name, fill in (("metrics", _metrics), ("alerts", _alerts)):
        try:
            found, rows = fill(run, start, end)
        except AdapterError as error:
            run.problem(f"frame {name} is missing: {error}")
            continue
        setattr(frames, name, rows)
        run.note(read(frame=name, server="Prometheus", query=found.query, step_s=found.step_s, rows=len(rows)))
    try:
        frames.logs = _logs(run, start, end)
        query = f"{run.profile.loki_selector} of each target"
        run.note(read(frame="logs", server="Loki", query=query, rows=len(frames.logs)))
    except AdapterError as error:
        run.problem(f"frame logs is missing: {error}")
    return frames


def _targets_pods(run: Run) -> str:
    return "pods with " + " or ".join(f"spec.nodeName={target.node}" for target in run.targets)


def _metrics(run: Run, start: datetime, end: datetime) -> tuple[Stored, pd.DataFrame]:
    label = run.profile.prometheus_node_label
    nodes = "|".join(target.node.replace(".", r"\\.") for target in run.targets)
    found = stored(run.servers.prometheus, METRICS, f'{label}=~"{nodes}"', start, end)
    for target in run.targets:
        if gpus := gpus_of(one.labels for one in found.series if one.labels.get(label) == target.node):
            run.note(GpusIdentified(node=target.node, gpus=gpus))
    return found, metrics_frame(found.series, node_label=label)


def _alerts(run: Run, start: datetime, end: datetime) -> tuple[Stored, pd.DataFrame]:
    found = stored(run.servers.prometheus, ("ALERTS",), "", start, end)
    _note_missed(run, found.series)
    rows: list[dict[str, object]] = [
        {
            "time": pd.Timestamp(at),
            "alert": one.labels.get("alertname", ""),
            "state": one.labels.get("alertstate", ""),
            "node": node_of(run, one.labels) or "",
            "severity": one.labels.get("severity", ""),
        }
        for one in found.series
        for at, _ in one.points
    ]
    return found, conform("alerts", rows)


def _note_missed(run: Run, series: list[Series]) -> None:
    """Alerts that came and went between our looks still belong into the history."""
    history = run.journal.history()
    known = {seen.label_set for seen in history.of(AlertSeen) if seen.state != "resolved"}
    injected = min((f.written_at for f in history.of(FaultInjected)), default=datetime.now(UTC))
    wanted, missed = wanted_of(run), []
    for one in series:
        labels = {key: value for key, value in one.labels.items() if key != "alertstate"}
        if one.labels.get("alertstate") != "firing" or not one.points or json.dumps(labels, sort_keys=True) in known:
            continue
        if siblings_alert(run, labels.get("alertname", ""), node_of(run, labels)):
            continue
        name, node, first, last = labels.get("alertname", ""), node_of(run, labels), one.points[0][0], one.points[-1][0]
        seen = AlertSeen(
            alert=name,
            state="firing",
            labels=labels,
            node=node,
            expected=(name, node) in wanted,
            at=first,
            at_baseline=first < injected,
            background=is_background(run, name, node),
        )
        missed.append((seen, last))
    active = {json.dumps(alert.labels, sort_keys=True) for alert in run.servers.prometheus.alerts()} if missed else ()
    for seen, last in missed:
        run.note(seen)
        if seen.label_set not in active:
            run.note(seen.model_copy(update={"state": "resolved", "at": last}))


def _logs(run: Run, start: datetime, end: datetime) -> pd.DataFrame:
    rows: list[dict[str, object]] = []
    for target in run.targets:
        lines = run.servers.loki.node_lines(target.node, containing="", start=start, end=end)
        rows += [
            {"time": pd.Timestamp(line.at), "node": target.node, "line": line.text} for line in lines[-_LONGEST_LOG:]
        ]
    return conform("logs", rows)
