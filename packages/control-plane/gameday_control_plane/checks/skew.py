"""A load must spread over the API servers again, by itself and without losing requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import pandas as pd

from gameday.checks.facts import first_fault, seconds_text, stop_reason, target_nodes
from gameday.checks.verdict import Status, Verdict, containment_verdict
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday_control_plane.events import HeldServersStarted, LoadMeasured
from gameday_control_plane.expect.control_plane import ControlPlane, ExpectedSkew
from gameday_control_plane.values.api_loads import SteadyLoad

ORDER = 61
REQUESTS = "apiserver_request_total"
WATCHES = "apiserver_longrunning_requests"
_RESOURCE = "secrets"
STEP_S = 5.0
"""Seconds between two moments of the index: the pace at which the lab's servers are scraped."""


@dataclass(frozen=True)
class SkewIndex:
    """The busiest server's share over an equal share at one moment, from 1 (even) to the number of servers."""

    at: datetime
    value: float


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    containment = ControlPlane.of(plan.expect).containment
    if containment is None or containment.skew is None:
        return []
    node = target_nodes(history)[0]
    load = steady_load(history)
    return [
        _heals(containment.skew, history, frames.api_server, load, node),
        _answered(containment.skew, history, load, node),
    ]


def steady_load(history: History) -> SteadyLoad | None:
    """Return the figures of the run's steady clients; None if there were none."""
    measured = (event.measured for event in history.of(LoadMeasured))
    return next((one for one in measured if isinstance(one, SteadyLoad)), None)


def load_index(api_server: pd.DataFrame, load: SteadyLoad, begin: datetime) -> list[SkewIndex]:
    """Return the index of a load's own kind of request, from `begin` to its end, every STEP_S seconds.

    Args:
        api_server: The frame of that name.
        load: The load. Its GETs of Secrets count, or its open watches of them.
        begin: The moment from which there are several servers.
    """
    rows = api_server[(api_server.resource == _RESOURCE) & (api_server.verb == ("WATCH" if load.watch_only else "GET"))]
    rows = rows[rows.metric == (WATCHES if load.watch_only else REQUESTS)]
    servers = sorted(set(api_server.server))
    moments = np.arange(begin.timestamp(), load.ended_at.timestamp(), STEP_S)
    if rows.empty or len(servers) < 2 or len(moments) < 2:
        return []
    by_server = np.array([_at(rows[rows.server == server], moments) for server in servers])
    # A counter of a restarted server would fall; the lab's servers do not restart while a load runs.
    amounts = by_server[:, 1:] if load.watch_only else np.clip(np.diff(by_server, axis=1), 0.0, None)
    return [
        SkewIndex(datetime.fromtimestamp(float(at), begin.tzinfo), float(column.max() / column.mean()))
        for at, column in zip(moments[1:], amounts.T, strict=True)
        if column.sum() > 0
    ]


def healed_after(index: Sequence[SkewIndex], below: float, begin: datetime) -> float | None:
    """Return the seconds from `begin` to the first of two moments in a row with an index below a bound; None if never.

    Two, because single moments of an uneven load are below it by chance.
    """
    low = [one.value < below for one in index]
    for place in range(len(low) - 1):
        if low[place] and low[place + 1]:
            return (index[place].at - begin).total_seconds()
    return None


def several_servers_from(history: History) -> datetime | None:
    """Return when the servers that were held back were started; None if there were none."""
    records = [record for record in history.records if isinstance(record.event, HeldServersStarted)]
    return records[0].at if records else None


def _at(
    rows: pd.DataFrame, moments: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return a server's sum over its series at each moment, interpolated linearly; 0 before the first sample."""
    total = np.zeros(len(moments))
    for _, series in rows.groupby(["code", "labels"]):
        ordered = series.sort_values("time")
        times = ordered.time.map(pd.Timestamp.timestamp).to_numpy(dtype="float64")
        total += np.interp(moments, times, ordered.value.to_numpy(dtype="float64"), left=0.0)
    return total


def _heals(
    expected: ExpectedSkew, history: History, api_server: pd.DataFrame, load: SteadyLoad | None, node: str | None
) -> Verdict:
    text = "The load spreads over the API servers again: the busiest one's share over an equal share falls"
    bound = f"< {expected.below:g} within {seconds_text(expected.within.total_seconds())}"
    begin = several_servers_from(history)
    index = load_index(api_server, load, begin) if load and begin else []
    if begin is None or not index:
        why = "no API server was started while the load ran" if begin is None else f"there are no samples of {REQUESTS}"
        why = why if first_fault(history, node) else f"not reached: {stop_reason(history)}"
        return containment_verdict("containment-skew", text, bound, "", Status.UNKNOWN, why, node)
    healed, last = healed_after(index, expected.below, begin), index[-1]
    seen_for = last.at - begin
    if healed is not None and healed <= expected.within.total_seconds():
        return containment_verdict("containment-skew", text, bound, f"after {healed:.0f} s", Status.HELD, "", node)
    measured = f"{last.value:.2f} after {seen_for.total_seconds():.0f} s"
    if seen_for + timedelta(seconds=2 * STEP_S) < expected.within:
        why = f"the load ended {seen_for.total_seconds():.0f} s after the servers were started: let it run for longer"
        return containment_verdict("containment-skew", text, bound, measured, Status.UNKNOWN, why, node)
    return containment_verdict("containment-skew", text, bound, measured, Status.BROKEN, "", node)


def _answered(expected: ExpectedSkew, history: History, load: SteadyLoad | None, node: str | None) -> Verdict:
    text = "The load's requests are answered while its connections move"
    bound = f"≤ {expected.failed_at_most:.3%} failed"
    if load is None or load.requests == 0:
        why = "there is no log of the load" if first_fault(history, node) else f"not reached: {stop_reason(history)}"
        return containment_verdict("containment-load-answered", text, bound, "", Status.UNKNOWN, why, node)
    share = load.failed / load.requests
    status = Status.BROKEN if share > expected.failed_at_most else Status.HELD
    measured = f"{load.failed} of {load.requests}"
    return containment_verdict("containment-load-answered", text, bound, measured, status, "", node)
