"""The control plane under load: an ordinary client's requests, the load's own, and the API servers' memory."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from gameday.checks.facts import target_nodes
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.report.figure import Figure
from gameday.report.summary import DurationKind
from gameday_control_plane.checks.api_canary import fault_window, longest_gap
from gameday_control_plane.checks.containment import memory_growth, restarts
from gameday_control_plane.checks.memory_slope import HEAP, memory_slope
from gameday_control_plane.events import LoadLogged, LoadStaged
from gameday_control_plane.settings import ControlPlaneSettings
from gameday_control_plane.values.api_requests import HAND_OVER_S, max_overlap, percentile

_WAIT = "apiserver_flowcontrol_request_wait_duration_seconds"


def figures(plan: Plan, history: History, frames: Frames) -> list[Figure]:
    return [
        *_canary(history),
        *_load(history),
        *_wait(plan, history, frames),
        *_memory(history, frames),
        *_slope(history, frames),
    ]


def _canary(history: History) -> Iterator[Figure]:
    under_load = str(DurationKind.CANARY_UNDER_LOAD)
    for node in target_nodes(history)[:1]:
        window = fault_window(history, node)
        samples = window.samples(history, node) if window else []
        if window and samples:
            for share, name in ((0.5, f"{under_load}: median"), (0.99, under_load)):
                value = percentile((sample.seconds for sample in samples), share) or 0.0
                yield Figure(name=name, unit="s", value=value)
            yield Figure(name=str(DurationKind.CANARY_GAP), unit="s", value=longest_gap(samples, window))
            failed = sum(not sample.is_served for sample in samples)
            yield Figure(name=f"{under_load}: failed requests", unit="", value=float(failed))


def _load(history: History) -> Iterator[Figure]:
    requests = [request for event in history.of(LoadLogged) for request in event.requests]
    served = [request for request in requests if request.is_served]
    if not requests:
        return
    yield Figure(name="load: requests", unit="", value=float(len(requests)))
    yield Figure(name="load: answered", unit="", value=float(len(served)))
    yield Figure(
        name="load: told to come later (429)", unit="", value=float(sum(one.status == 429 for one in requests))
    )
    yield Figure(name="load: most answers under way at once", unit="", value=float(max_overlap(requests, HAND_OVER_S)))
    yield Figure(
        name="load: from the first request to the last answer",
        unit="s",
        value=(max(one.ended_at for one in requests) - min(one.sent_at for one in requests)).total_seconds(),
    )
    if lists := [one.seconds for one in served if one.verb == "list"]:
        value = percentile(lists, 0.5) or 0.0
        yield Figure(name="load: median time of a LIST", unit="s", value=value)


def _wait(plan: Plan, history: History, frames: Frames) -> Iterator[Figure]:
    window, wanted = (
        fault_window(history, target_nodes(history)[0]),
        ControlPlaneSettings.of(plan.settings).flow_control,
    )
    if window is None or wanted is None:
        return
    rows = frames.api_server[frames.api_server.priority_level == wanted.name]
    # A refused request waited, too, under execute=false; the level is new, so its counter began at 0.
    rows = rows[(rows.time >= pd.Timestamp(window.begin)) & (rows.labels == "execute=true")]
    waited, count = (
        rows[rows.metric == f"{_WAIT}_{part}"].groupby(["server", "flow_schema"]).value.max().sum()
        for part in ("sum", "count")
    )
    if count:
        yield Figure(name="limited level: mean wait in the queue", unit="s", value=float(waited / count))


def _memory(history: History, frames: Frames) -> Iterator[Figure]:
    window = fault_window(history, target_nodes(history)[0])
    growth = memory_growth(frames.api_server, window)
    if growth:
        yield Figure(name="API server: growth of memory under load", unit="MiB", value=max(growth.values()) / 2**20)
    begun = restarts(frames.api_server, window, history)
    if begun is not None:
        ended = len({server for server, _ in begun})
        yield Figure(name="API servers that ended under load", unit="", value=float(ended))
        yield Figure(name="times that API servers started again", unit="", value=float(len(begun)))


def _slope(history: History, frames: Frames) -> Iterator[Figure]:
    for staged in history.of(LoadStaged)[:1]:
        slope = memory_slope(frames.api_server, staged)
        if slope:
            size = staged.list_bytes / 2**20
            yield Figure(name="one LIST as JSON", unit="MiB", value=size)
            # Without a line through the peaks, these are upper bounds.
            yield Figure(name="k: memory by bytes of concurrent LISTs", unit="", value=slope.k)
            yield Figure(name="memory by concurrent LIST", unit="MiB", value=slope.k * size)
            heap = memory_slope(frames.api_server, staged, HEAP)
            if heap:
                yield Figure(name="k of the heap in use", unit="", value=heap.k)
            if slope.line:
                yield Figure(name="R² of the line through the peaks", unit="", value=slope.line.r2)
