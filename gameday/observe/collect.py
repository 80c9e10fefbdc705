"""Fill the frames once, at the end: asking for the whole run costs less than watching it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import pandas as pd

from gameday.errors import AdapterError
from gameday.history.events import FrameRead, GpusIdentified
from gameday.history.frames import Frames, conform
from gameday.observe.alerts import node_of, note_missed_alerts
from gameday.observe.dcgm import METRICS, gpus_of
from gameday.observe.metrics import metrics_frame
from gameday.observe.stored import Stored, stored
from gameday.run.run import Run
from gameday.run.targets import chosen_targets

_LONGEST_LOG = 1000


def collect(run: Run) -> Frames:
    """Return metrics, alerts, log lines and pods of the targets from the baseline's start until now.

    A server that does not answer costs its own frame, not the others.
    """
    frames = Frames(pods=conform("pods", run.nodes.pod_states.rows()))
    nodes = tuple(target.node for target in chosen_targets(run.history()))
    if not nodes:
        return frames
    start, end = run.record.started - run.plan.baseline.window, datetime.now(UTC)
    read = partial(FrameRead, start=start, end=end, step_s=None)
    pods = " or ".join(f"spec.nodeName={node}" for node in nodes)
    watch = f"watch of pods with {pods} and of this run's own"
    run.note(read(frame="pods", server="Kubernetes", query=watch, start=run.record.started, rows=len(frames.pods)))
    for name, fill in (("metrics", _metrics), ("alerts", _alerts)):
        try:
            found, rows = fill(run, nodes, start, end)
        except AdapterError as error:
            run.problem(f"frame {name} is missing: {error}")
            continue
        setattr(frames, name, rows)
        run.note(read(frame=name, server="Prometheus", query=found.query, step_s=found.step_s, rows=len(rows)))
    try:
        frames.logs = _logs(run, nodes, start, end)
        query = f"{run.profile.loki_selector} of each target"
        run.note(read(frame="logs", server="Loki", query=query, rows=len(frames.logs)))
    except AdapterError as error:
        run.problem(f"frame logs is missing: {error}")
    return frames


def _metrics(run: Run, nodes: Sequence[str], start: datetime, end: datetime) -> tuple[Stored, pd.DataFrame]:
    label = run.profile.prometheus_node_label
    pattern = "|".join(node.replace(".", r"\\.") for node in nodes)
    found = stored(run.servers.prometheus, METRICS, f'{label}=~"{pattern}"', start, end)
    for node in nodes:
        if gpus := gpus_of(one.labels for one in found.series if one.labels.get(label) == node):
            run.note(GpusIdentified(node=node, gpus=gpus))
    return found, metrics_frame(found.series, node_label=label)


def _alerts(run: Run, nodes: Sequence[str], start: datetime, end: datetime) -> tuple[Stored, pd.DataFrame]:
    found = stored(run.servers.prometheus, ("ALERTS",), "", start, end)
    note_missed_alerts(run, nodes, found.series)
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


def _logs(run: Run, nodes: Sequence[str], start: datetime, end: datetime) -> pd.DataFrame:
    rows: list[dict[str, object]] = []
    for node in nodes:
        lines = run.servers.loki.node_lines(node, containing="", start=start, end=end)
        rows += [{"time": pd.Timestamp(line.at), "node": node, "line": line.text} for line in lines[-_LONGEST_LOG:]]
    return conform("logs", rows)
