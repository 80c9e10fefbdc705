"""The load must be held where the plan says: seats, requests that run at the same time, memory, servers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gameday.checks.facts import first_fault, first_few, judge_absence, stop_reason, target_nodes
from gameday.checks.verdict import Status, Verdict, containment_verdict
from gameday.documents.sizes import format_size
from gameday.history.events import ApiServersRestarted
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step
from gameday_control_plane.checks.api_canary import Window, fault_window
from gameday_control_plane.events import FlowControlRead, LoadLogged, SeatsRead
from gameday_control_plane.expect.control_plane import ControlPlane
from gameday_control_plane.settings import ControlPlaneSettings
from gameday_control_plane.values.api_requests import ApiRequest, busy_seconds

if TYPE_CHECKING:
    import pandas as pd

ORDER = 60
EXECUTING = "apiserver_flowcontrol_current_executing_requests"
MEMORY = "process_resident_memory_bytes"
WORK_SECONDS = "apiserver_flowcontrol_request_execution_seconds_sum"
STARTED = "process_start_time_seconds"


_OF_ANOTHER = 0.5
"""Tolerance for the mean number of requests in work. A load's own LISTs, which count its objects, have added 0.01; one
seat more than a level should have adds 1."""


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    return [*flow_control_verdicts(plan, history), *_by_frames(plan, history, frames)]


def flow_control_verdicts(plan: Plan, history: History) -> list[Verdict]:
    """Return the verdicts on the seats of the plan's level, and on changes by others; none if the plan has no level."""
    wanted = ControlPlaneSettings.of(plan.settings).flow_control
    return [_seats(wanted.name, wanted.seats, history), _unchanged(wanted.name, history)] if wanted else []


def _unchanged(name: str, history: History) -> Verdict:
    text = f"Nobody changes flow schema {name} and its levels while the plan needs them"
    read = history.last(FlowControlRead)
    if read is None:
        _, why = judge_absence(history, Step.VERIFY_TAINT, "the flow schema and its levels after the fault")
        return containment_verdict("containment-unchanged", text, "no change", "", Status.UNKNOWN, why)
    if read.changes:
        why = first_few(read.changes)
        return containment_verdict("containment-unchanged", text, "no change", "", Status.BROKEN, why)
    return containment_verdict("containment-unchanged", text, "no change", "no change", Status.HELD, "")


def _seats(name: str, seats: int, history: History) -> Verdict:
    read = {event.phase: event.seats for event in history.of(SeatsRead)}
    wrong = [
        f"{server} had {found} {phase} the fault"
        for phase, by_server in read.items()
        for server, found in sorted(by_server.items())
        if found != seats
    ]
    missing = [phase for phase in ("before", "after") if not read.get(phase)]
    if wrong:
        status, why = Status.BROKEN, first_few(wrong)
    elif missing:
        # A server that could not be scraped has not lost its seats.
        _, why = judge_absence(history, Step.VERIFY_TAINT, f"the level's seats {missing[0]} the fault")
        status = Status.UNKNOWN
    else:
        status, why = Status.HELD, ""
    measured = ", ".join(f"{server}: {found}" for server, found in sorted(read.get("after", {}).items()))
    return containment_verdict(
        "containment-seats", f"Level {name} has its seats on every API server", f"= {seats}", measured, status, why
    )


def _by_frames(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    expected = ControlPlane.of(plan.expect).containment
    if expected is None:
        return []
    verdicts = []
    for node in target_nodes(history):
        window = fault_window(history, node)
        if expected.executing_at_most:
            levels = _levels(plan, history, node)
            verdicts.append(_executing(expected.executing_at_most, levels, history, frames, node, window))
            verdicts.append(_executing_mean(expected.executing_at_most, levels, history, frames, node))
        if expected.memory_growth_at_most is not None:
            verdicts.append(_memory(expected.memory_growth_at_most, history, frames, node, window))
        if expected.servers_stay_up:
            verdicts.append(_stay_up(history, frames, node, window))
    return verdicts


def _levels(plan: Plan, history: History, node: str | None) -> set[str]:
    """Return the priority levels that served the fault's requests by their log, else the plan's; empty means all."""
    logged = {name for event in history.of(LoadLogged) if event.node == node for name in event.levels.values()}
    wanted = ControlPlaneSettings.of(plan.settings).flow_control
    return logged or ({wanted.name} if wanted else set())


def _executing(
    most: int, levels: set[str], history: History, frames: Frames, node: str | None, window: Window | None
) -> Verdict:
    rows = _rows(_of_levels(frames.api_server, levels), EXECUTING, window)
    text = "In every scrape, no more of the fault's requests run at the same time on an API server"
    if rows.empty:
        status, why = _not_measured(history, node, f"samples of {EXECUTING}")
        return containment_verdict("containment-executing", text, f"≤ {most}", "", status, why, node)
    at_once = rows.groupby(["server", "priority_level", "time"]).value.sum()
    found, scrapes = int(at_once.max()), len(at_once)
    status = Status.BROKEN if found > most else Status.HELD
    measured = f"{found} at most in {scrapes} scrapes of {', '.join(sorted(levels)) or 'every level'}"
    return containment_verdict("containment-executing", text, f"≤ {most}", measured, status, "", node)


def _executing_mean(most: int, levels: set[str], history: History, frames: Frames, node: str | None) -> Verdict:
    """Judge by the servers' own sum of the time in work, which misses nothing between two scrapes."""
    text = "Over the whole load, no more of the fault's requests run on an API server on average"
    requests = [request for event in history.of(LoadLogged) if event.node == node for request in event.requests]
    means = executing_mean(frames.api_server, levels, requests)
    if not means or not any(request.is_served for request in requests):
        what = f"{WORK_SECONDS} before and after the load, with a log of its requests"
        status, why = _not_measured(history, node, what)
        return containment_verdict("containment-executing-mean", text, f"≤ {most}", "", status, why, node)
    server, found = max(means.items(), key=lambda item: item[1])
    status = Status.BROKEN if found >= most + _OF_ANOTHER else Status.HELD
    measured = f"{found:.2f} in {busy_seconds(requests):.1f} s ({server})"
    return containment_verdict("containment-executing-mean", text, f"≤ {most}", measured, status, "", node)


def executing_mean(api_server: pd.DataFrame, levels: set[str], requests: Sequence[ApiRequest]) -> dict[str, float]:
    """Return by server the mean number of requests in work while a load had any under way.

    A request holds its seats at least as long as it is in work, and its client waits longer than that. So a storm in a
    level of N seats has a mean of N at most, even if its clients read slowly. Work between the last scrape and the
    first request counts as well, such as the LIST with which the load counts its objects.

    Args:
        api_server: The frame of that name.
        levels: Names of the priority levels to count; empty: every one.
        requests: The load's log. Servers without a sample before the first and after the last request are left out,
            and so are servers that started again in between.
    """
    rows = api_server[api_server.metric == WORK_SECONDS]
    if rows.empty or not requests:
        return {}
    before = rows[rows.time <= min(request.sent_at for request in requests)]
    after = rows[rows.time >= max(request.ended_at for request in requests)]
    keys = ["server", "priority_level", "flow_schema", "labels"]
    begun = _of_levels(before, levels).sort_values("time").groupby(keys).value.last()
    ended = _of_levels(after, levels).sort_values("time").groupby(keys).value.first()
    # A flow schema shows its series with its first request.
    worked = ended.sub(begun, fill_value=0.0).groupby("server")
    whole = set(before.server) & set(after.server) - {server for server, values in worked if values.min() < 0}
    busy = busy_seconds(requests)
    return {str(server): float(values.sum()) / busy for server, values in worked if server in whole}


def _memory(most: int, history: History, frames: Frames, node: str | None, window: Window | None) -> Verdict:
    text = "No API server's memory grows by more"
    growth = memory_growth(frames.api_server, window)
    if not growth:
        status, why = _not_measured(history, node, f"samples of {MEMORY} before and during the fault")
        return containment_verdict("containment-memory", text, f"≤ {format_size(most)}", "", status, why, node)
    server, worst = max(growth.items(), key=lambda item: item[1])
    status = Status.BROKEN if worst > most else Status.HELD
    return containment_verdict(
        "containment-memory", text, f"≤ {format_size(most)}", f"{worst / 2**20:,.0f} MiB ({server})", status, "", node
    )


def memory_growth(api_server: pd.DataFrame, window: Window | None) -> dict[str, float]:
    """Return by server how far its memory rose in a window above the last sample before it, in bytes.

    Servers without samples in the window and before it are left out.

    Args:
        api_server: The frame of that name.
        window: The time with the fault in.
    """
    if window is None:
        return {}
    rows = api_server[api_server.metric == MEMORY]
    before = rows[rows.time < window.begin].sort_values("time").groupby("server").value.last()
    during = _rows(api_server, MEMORY, window).groupby("server").value.max()
    grown = (during - before).dropna()
    return {str(server): float(value) for server, value in grown.items()}


def _stay_up(history: History, frames: Frames, node: str | None, window: Window | None) -> Verdict:
    text = "No API server ends or starts again from the fault on"
    begun = restarts(frames.api_server, window, history)
    if begun is None:
        status, why = _not_measured(history, node, f"samples of {STARTED}")
        return containment_verdict("containment-servers-up", text, "0 restarts", "", status, why, node)
    why = first_few(
        [f"{server} started again at {datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC" for server, at in begun]
    )
    status = Status.BROKEN if begun else Status.HELD
    measured = f"{len(begun)} restarts"
    return containment_verdict("containment-servers-up", text, "0 restarts", measured, status, why, node)


def restarts(api_server: pd.DataFrame, window: Window | None, history: History) -> list[tuple[str, float]] | None:
    """Return each start of an API server since a window began, as the server and Unix seconds; None if not measured.

    Args:
        api_server: The frame of that name.
        window: The time with the fault in.
        history: The run's history; restarts that the run made itself do not count.
    """
    rows = api_server[api_server.metric == STARTED]
    if window is None or rows.empty:
        return None
    # Prometheus stores the start time rounded to milliseconds.
    begun = rows[rows.value > window.begin.timestamp()]
    for own in history.of(ApiServersRestarted):
        begun = begun[(begun.value < own.asked_at.timestamp()) | (begun.value > own.ready_at.timestamp())]
    return sorted({(str(server), float(at)) for server, at in zip(begun.server, begun.value.round(), strict=True)})


def _of_levels(api_server: pd.DataFrame, levels: set[str]) -> pd.DataFrame:
    return api_server[api_server.priority_level.isin(levels)] if levels else api_server


def _rows(api_server: pd.DataFrame, metric: str, window: Window | None) -> pd.DataFrame:
    rows = api_server[api_server.metric == metric]
    if window is None:
        return rows.iloc[0:0]
    return rows[(rows.time >= window.begin) & (rows.time <= window.end)]


def _not_measured(history: History, node: str | None, what: str) -> tuple[Status, str]:
    """Return UNKNOWN and why: a series that was not scraped proves nothing about the load."""
    if first_fault(history, node) is None:
        return Status.UNKNOWN, f"not reached: {stop_reason(history)}"
    return Status.UNKNOWN, f"not measured: {what}"
