"""Go's garbage collector in the API servers under load: how often it ran, what it kept, what it cost.

With several servers, each figure is their median.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pandas as pd

from gameday.checks.facts import target_nodes
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.report.figure import Figure
from gameday_control_plane.checks.api_canary import fault_window
from gameday_control_plane.checks.containment import MEMORY

# Names from `gameday/observe/api_server_metrics.py`, which explains them.
_CYCLES = "go_gc_cycles_total_gc_cycles_total"
_ALLOCATED = "go_gc_heap_allocs_bytes_total"
# "This metric is an overestimate, and not directly comparable to system CPU time measurements. Compare only with other
# /cpu/classes metrics": https://pkg.go.dev/runtime/metrics. All four count GOMAXPROCS times the wall clock, and are
# brought up to date at the end of each collection.
_ALL_CPU, _IDLE = "go_cpu_classes_total_cpu_seconds_total", "go_cpu_classes_idle_cpu_seconds_total"
_GC_CPU = "go_cpu_classes_gc_total_cpu_seconds_total"
_GC_IDLE = "go_cpu_classes_gc_mark_idle_cpu_seconds_total"
"""Marking on idle processors, which gives way to any request. Go's own GCCPUFraction (package runtime, MemStats) leaves
it out, too.
"""
_LIVE = "go_gc_heap_live_bytes"
_GOAL = "go_gc_heap_goal_bytes"
_PERCENT = "go_gc_gogc_percent"
_LIMIT = "go_gc_gomemlimit_bytes"
_NO_LIMIT = float(2**62)
"""A higher memory limit means none: Go's runtime shows 2^63 - 1 if none is set."""
_MIB = 2**20


def figures(plan: Plan, history: History, frames: Frames) -> list[Figure]:
    nodes = target_nodes(history)
    window = fault_window(history, nodes[0]) if nodes else None
    rows = frames.api_server
    if window is None or not (rows.metric == _CYCLES).any():
        return []
    begin, end = pd.Timestamp(window.begin), pd.Timestamp(window.end)
    return list(_figures(rows[(rows.time >= begin) & (rows.time <= end)]))


def _figures(rows: pd.DataFrame) -> Iterator[Figure]:
    cycles, allocated = _rates(_of(rows, _CYCLES)), _rates(_of(rows, _ALLOCATED))
    yield from _figure("collections in a second", "", cycles)
    # Counted by allocated bytes, two runs compare even if a busy machine served one of them fewer requests.
    yield from _figure("collections for each GiB allocated", "", cycles / (allocated[allocated > 0] / 2**30))
    yield from _figure("share of CPU spent on collections", "%", 100 * _gc_share(rows))
    yield from _figure("live heap under load", "MiB", _by_server(rows, _LIVE, "median") / _MIB)
    yield from _figure("heap goal under load", "MiB", _by_server(rows, _GOAL, "median") / _MIB)
    yield from _figure("peak memory under load", "MiB", _by_server(rows, MEMORY, "max") / _MIB)
    yield from _figure("GOGC in force", "%", _by_server(rows, _PERCENT, "last"))
    limits = _by_server(rows, _LIMIT, "last")
    yield from _figure("GOMEMLIMIT in force", "MiB", limits[limits < _NO_LIMIT] / _MIB)


def _gc_share(rows: pd.DataFrame) -> pd.Series[float]:
    """Return by server the share of its busy CPU time that collections took from its own work, by Go's estimates."""
    given, idle, collecting, spare = (_rates(_of(rows, name)) for name in (_ALL_CPU, _IDLE, _GC_CPU, _GC_IDLE))
    busy = given - idle
    return (collecting - spare) / busy[busy > 0]


def _of(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    return rows[rows.metric == metric].sort_values("time")


def _by_server(rows: pd.DataFrame, metric: str, how: Literal["last", "max", "median"]) -> pd.Series[float]:
    return _of(rows, metric).groupby("server").value.agg(how)


def _rates(counter: pd.DataFrame) -> pd.Series[float]:
    """Return a counter's increase per second by server; a restart begins again at 0."""
    found = {}
    for server, rows in counter.groupby("server"):
        seconds = (rows.time.iloc[-1] - rows.time.iloc[0]).total_seconds()
        if seconds > 0:
            steps = rows.value.diff().iloc[1:]
            found[str(server)] = float(steps.where(steps >= 0, rows.value.iloc[1:]).sum()) / seconds
    return pd.Series(found, dtype=float)


def _figure(name: str, unit: str, by_server: pd.Series[float]) -> Iterator[Figure]:
    known = by_server.dropna()
    if len(known):
        yield Figure(name=f"API server: {name}", unit=unit, value=float(known.median()))
