"""Read the data of the frames once, at the end: asking for the whole run costs less than watching it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from gameday.cluster.prometheus import Prometheus
from gameday.errors import AdapterError
from gameday.history.events import FrameRead, GpusIdentified
from gameday.history.frames import Columns, columns_of
from gameday.observe.alerts import node_of, note_missed_alerts
from gameday.observe.api_server_samples import read_api_server
from gameday.observe.dcgm import RUN_METRICS, gpus_of
from gameday.observe.prometheus_pace import note_if_behind
from gameday.observe.samples import FrameRows, metrics_columns, read_samples
from gameday.observe.scheduler_samples import read_scheduler
from gameday.run.agents import SAMPLE_EVERY_S, samples_nvml
from gameday.run.run import Run
from gameday.run.targets import chosen_targets
from gameday.values.nodes import NodeRole

_MOST_LOG_LINES_PER_NODE = 1000


@dataclass(frozen=True)
class _Read:
    """A frame, and how it was read."""

    rows: Columns
    server: str
    query: str
    step_s: float | None = None


def collect(run: Run) -> dict[str, Columns]:
    """Return each frame's columns: metrics, alerts, log lines and pods of the targets since the baseline's start.

    A server that does not answer costs its own frame, not the others.
    """
    pods = columns_of("pods", run.nodes.pod_states.rows())
    nodes = tuple(target.node for target in chosen_targets(run.history()))
    if not nodes:
        return {"pods": pods}
    start, end = run.record.started - run.plan.baseline.window, run.clock.now()
    note_if_behind(run, run.record.started, end)
    selection = " or ".join(f"spec.nodeName={node}" for node in nodes)
    watch = _Read(pods, "Kubernetes", f"watch of pods with {selection} and of this run's own")
    return {
        "pods": _frame(run, "pods", run.record.started, end, lambda: watch),
        "metrics": _frame(run, "metrics", start, end, lambda: _metrics(run, nodes, start, end)),
        "nvml": _nvml(run, start, end),
        "alerts": _frame(run, "alerts", start, end, lambda: _alerts(run, nodes, start, end)),
        "logs": _frame(run, "logs", start, end, lambda: _logs(run, nodes, start, end)),
        "api_server": _of_kubernetes(run, "api_server", read_api_server, start, end),
        "scheduler": _of_kubernetes(run, "scheduler", read_scheduler, start, end),
    }


def _of_kubernetes(
    run: Run, name: str, read: Callable[[Prometheus, datetime, datetime], FrameRows], start: datetime, end: datetime
) -> Columns:
    """Read the own metrics of Kubernetes' servers, which describe only a load on the control plane."""
    if run.plan.fault.runs_on is not NodeRole.API_CLIENT:
        return columns_of(name)

    def read_frame() -> _Read:
        found = read(run.servers.prometheus, start, end)
        return _Read(found.rows, "Prometheus", found.query, found.step_s)

    return _frame(run, name, start, end, read_frame)


def _nvml(run: Run, start: datetime, end: datetime) -> Columns:
    """Return what the samplers saw, if the plan allows them."""
    if not samples_nvml(run.plan):
        return columns_of("nvml")
    rows = columns_of("nvml", run.nvml.rows())
    read = _Read(rows, "NVML", f"the agent's reading of every GPU, each {SAMPLE_EVERY_S:g} s")
    return _frame(run, "nvml", start, end, lambda: read)


def _frame(run: Run, name: str, start: datetime, end: datetime, read: Callable[[], _Read]) -> Columns:
    """Read one frame and note how; it is empty if its server does not answer."""
    try:
        found = read()
    except AdapterError as error:
        run.problem(f"frame {name} is missing: {error}")
        return columns_of(name)
    run.note(
        FrameRead(
            frame=name,
            server=found.server,
            query=found.query,
            start=start,
            end=end,
            step_s=found.step_s,
            rows=len(found.rows["time"]),
        )
    )
    return found.rows


def _metrics(run: Run, nodes: Sequence[str], start: datetime, end: datetime) -> _Read:
    label = run.profile.prometheus_node_label
    pattern = "|".join(node.replace(".", r"\\.") for node in nodes)
    found = read_samples(run.servers.prometheus, RUN_METRICS, f'{label}=~"{pattern}"', start, end)
    for node in nodes:
        if gpus := gpus_of(series.labels for series in found.series if series.labels.get(label) == node):
            run.note(GpusIdentified(node=node, gpus=gpus))
    return _Read(metrics_columns(found.series, node_label=label), "Prometheus", found.query, found.step_s)


def _alerts(run: Run, nodes: Sequence[str], start: datetime, end: datetime) -> _Read:
    found = read_samples(run.servers.prometheus, ("ALERTS",), "", start, end)
    note_missed_alerts(run, nodes, found.series)
    rows: list[dict[str, object]] = [
        {
            "time": at,
            "alert": series.labels.get("alertname", ""),
            "state": series.labels.get("alertstate", ""),
            "node": node_of(run, series.labels) or "",
            "severity": series.labels.get("severity", ""),
        }
        for series in found.series
        for at, _ in series.points
    ]
    return _Read(columns_of("alerts", rows), "Prometheus", found.query, found.step_s)


def _logs(run: Run, nodes: Sequence[str], start: datetime, end: datetime) -> _Read:
    rows: list[dict[str, object]] = []
    for node in nodes:
        lines = run.servers.loki.node_lines(node, containing="", start=start, end=end)
        newest = lines[-_MOST_LOG_LINES_PER_NODE:]
        rows += [{"time": line.at, "node": node, "line": line.text} for line in newest]
    return _Read(columns_of("logs", rows), "Loki", f"{run.profile.loki_selector} of each target")
