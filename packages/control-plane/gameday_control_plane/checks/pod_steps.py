"""The cost of pods in steps to the control plane, by the metrics of its schedulers and API servers. Pure.

A counter's growth is from its last sample before a span to its last one in it: a scrape may be seconds old, so a span
should be longer than the time between two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

import pandas as pd

from gameday.history.frames import Frames
from gameday_control_plane.events import PodStepsLogged
from gameday_control_plane.values.pod_steps import PodStep

# gameday/observe/api_server_metrics.py explains each of these names.
_MEMORY = "process_resident_memory_bytes"
_SLI = "scheduler_pod_scheduling_sli_duration_seconds_bucket"
_REQUESTS = "apiserver_request_total"
_WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
_READS = ("GET",)
_OF_PODS = ("pods", "events", "resourceclaims", "noderesourcetopologies")
"""Resources that are written for pods; node heartbeats and the game-day's own notes are in others."""


@dataclass(frozen=True)
class StepCost:
    """A step and its cost; None means not measured."""

    step: PodStep
    p50_s: float | None
    """Scheduling SLI: from a pod's entry into the queue to its binding, as the schedulers measured it."""
    p99_s: float | None
    binds_per_s: float | None
    schedulers: float | None
    """Most resident memory, in bytes, of all schedulers together."""
    api_server: float | None
    """Most resident memory, in bytes, of any one API server."""


@dataclass(frozen=True)
class LoadCost:
    """The cost of all steps together; None or empty means not measured."""

    bound: int
    took_s: float
    p50_s: float | None
    p99_s: float | None
    writes: dict[str, float]
    """Writes that API servers carried out per bound pod, by resource (`pods/status`)."""
    reads: dict[str, float]
    """Reads of single objects (GET) per bound pod, by resource."""


def step_costs(logged: PodStepsLogged, frames: Frames) -> list[StepCost]:
    """Return the cost of each step; none for an older history, which has no times of steps."""
    found = []
    for step in logged.steps:
        if step.began_at is None or step.until is None:
            continue
        begin, end = step.began_at, step.until
        schedulers = _most_memory(frames.scheduler, begin, end)
        servers = _most_memory(frames.api_server, begin, end)
        found.append(
            StepCost(
                step=step,
                p50_s=_quantile(frames.scheduler, 0.5, begin, end),
                p99_s=_quantile(frames.scheduler, 0.99, begin, end),
                binds_per_s=step.bound / step.took_s if step.took_s > 0 else None,
                schedulers=float(schedulers.sum()) if len(schedulers) else None,
                api_server=float(servers.max()) if len(servers) else None,
            )
        )
    return found


def load_cost(logged: PodStepsLogged, frames: Frames) -> LoadCost | None:
    """Return the cost of all steps; None if no step's times are known."""
    timed = [step for step in logged.steps if step.began_at and step.until]
    begin, end = (timed[0].began_at, timed[-1].until) if timed else (None, None)
    if begin is None or end is None:
        return None
    bound = sum(step.bound for step in timed)
    return LoadCost(
        bound=bound,
        took_s=sum(step.took_s for step in timed),
        p50_s=_quantile(frames.scheduler, 0.5, begin, end),
        p99_s=_quantile(frames.scheduler, 0.99, begin, end),
        writes=_requests(frames.api_server, _WRITES, begin, end, bound),
        reads=_requests(frames.api_server, _READS, begin, end, bound),
    )


def _most_memory(rows: pd.DataFrame, begin: datetime, end: datetime) -> pd.Series[float]:
    """Return the most resident memory of each server that was scraped in a span."""
    memory = rows[(rows.metric == _MEMORY) & (rows.time >= pd.Timestamp(begin)) & (rows.time <= pd.Timestamp(end))]
    return memory.groupby("server").value.max()


def _growth(rows: pd.DataFrame, key: list[str], begin: datetime, end: datetime) -> pd.Series[float]:
    """Return the growth of each counter over a span; a series that began within the span began at 0."""
    sorted_rows = rows.sort_values("time")
    after = sorted_rows[sorted_rows.time <= pd.Timestamp(end)].groupby(key).value.last()
    before = sorted_rows[sorted_rows.time <= pd.Timestamp(begin)].groupby(key).value.last()
    # A counter that fell shows that its server started again.
    grown = after - before.reindex(after.index, fill_value=0.0)
    return grown.where(grown >= 0, after)


def _quantile(scheduler: pd.DataFrame, share: float, begin: datetime, end: datetime) -> float | None:
    """Return a quantile of the scheduling SLI over all schedulers, as PromQL's histogram_quantile estimates it."""
    rows = scheduler[scheduler.metric == _SLI]
    if rows.empty:
        return None
    grown = _growth(rows, ["server", "labels", "le"], begin, end).groupby("le").sum()
    buckets = sorted((float(str(le)), float(count)) for le, count in grown.items())
    wanted, below, lower = share * buckets[-1][1], 0.0, 0.0
    if not wanted:
        return None
    for upper, count in buckets:
        if count >= wanted and upper < math.inf:
            return lower + (upper - lower) * (wanted - below) / (count - below)
        below, lower = count, upper if upper < math.inf else lower
    return lower  # the last bucket has no end: its beginning is the least that the quantile can be


def _requests(
    api_server: pd.DataFrame, verbs: tuple[str, ...], begin: datetime, end: datetime, pods: int
) -> dict[str, float]:
    rows = api_server[
        (api_server.metric == _REQUESTS)
        & api_server.verb.isin(verbs)
        & api_server.resource.isin(_OF_PODS)
        & api_server.code.str.startswith("2")
    ]
    if rows.empty or not pods:
        return {}
    grown = _growth(rows, ["server", "verb", "group", "resource", "code", "labels"], begin, end).reset_index()
    part = grown.labels.str.extract(r"(?:^|,)subresource=([^,]*)", expand=False).fillna("")
    name = grown.resource.where(part == "", grown.resource + "/" + part)
    return {str(one): float(count) / pods for one, count in grown.groupby(name).value.sum().items() if count > 0}
