"""The cost of following many objects: the client's requests, bytes, CPU and delay, and the API server's CPU."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pandas as pd

from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.report.figure import Figure
from gameday_control_plane.events import LoadMeasured
from gameday_control_plane.values.api_loads import Followed
from gameday_control_plane.values.api_requests import percentile

_CPU = "process_cpu_seconds_total"


def figures(plan: Plan, history: History, frames: Frames) -> list[Figure]:
    return [
        figure
        for event in history.of(LoadMeasured)
        if isinstance(event.measured, Followed)
        for figure in (*_client(event.measured), *_server(event.measured, frames.api_server))
    ]


def _client(measured: Followed) -> Iterator[Figure]:
    seconds = (measured.ended_at - measured.synced_at).total_seconds()
    first, after = measured.to_sync, measured.to_follow
    yield Figure(name="following client: bytes of its first view", unit="MB", value=first.bytes / 1e6)
    if seconds > 0:
        yield Figure(name="following client: requests per minute", unit="", value=after.requests / seconds * 60)
        yield Figure(name="following client: LISTs per minute", unit="", value=after.lists / seconds * 60)
        yield Figure(name="following client: bytes received per second", unit="kB/s", value=after.bytes / seconds / 1e3)
        yield Figure(name="following client: CPU", unit="% of a core", value=after.cpu_seconds / seconds * 100)
    yield Figure(name="following client: failed requests", unit="", value=float(first.failed + after.failed))
    for share, name in ((0.5, "median"), (0.99, "99th percentile")):
        value = percentile(measured.lags, share)
        if value is not None:
            yield Figure(name=f"following client: from a change to its sight, {name}", unit="s", value=value)
    yield Figure(name="following client: changes never seen", unit="", value=float(measured.unseen))


def _server(measured: Followed, api_server: pd.DataFrame) -> Iterator[Figure]:
    used = cores_used(api_server, measured.synced_at, measured.ended_at)
    if used:
        yield Figure(name="API server: CPU while a client follows", unit="% of a core", value=sum(used.values()) * 100)


def cores_used(api_server: pd.DataFrame, begin: datetime, end: datetime) -> dict[str, float]:
    """Return the cores that each server used between its first and its last sample in a window.

    Args:
        api_server: The frame of that name.
        begin: The window's begin.
        end: The window's end.

    Returns:
        Cores by server, without servers that have fewer than two samples in it or started again.
    """
    rows = api_server[api_server.metric == _CPU]
    rows = rows[(rows.time >= pd.Timestamp(begin)) & (rows.time <= pd.Timestamp(end))].sort_values("time")
    found = {}
    for server, mine in rows.groupby("server"):
        seconds = (mine.time.iloc[-1] - mine.time.iloc[0]).total_seconds()
        if seconds > 0 and mine.value.is_monotonic_increasing:
            found[str(server)] = float((mine.value.iloc[-1] - mine.value.iloc[0]) / seconds)
    return found
