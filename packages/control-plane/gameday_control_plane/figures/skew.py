"""The skew of a steady load over several API servers: how uneven it is, and how soon it evens out."""

from __future__ import annotations

import math

from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.plan.rehearsal import LabComponent
from gameday.report.figure import Figure
from gameday_control_plane.checks.skew import healed_after, load_index, several_servers_from, steady_load
from gameday_control_plane.values.api_loads import SteadyLoad

_HEALED = 1.3
"""Index below which a load counts as even (research: skew behind a balancer of connections)."""


def figures(plan: Plan, history: History, frames: Frames) -> list[Figure]:
    load, begin = steady_load(history), several_servers_from(history)
    if load is None:
        return []
    found = [
        Figure(name="steady clients: requests", unit="", value=float(load.requests)),
        Figure(name="steady clients: failed requests", unit="", value=float(load.failed)),
        Figure(name="steady clients: connections cut under a request", unit="", value=float(_sum(load, "cut"))),
        Figure(name="steady clients: reconnects", unit="", value=float(_sum(load, "reconnects"))),
    ]
    index = load_index(frames.api_server, load, begin) if begin else []
    if begin and index:
        most, last = max(one.value for one in index), index[-3:]
        found.append(Figure(name="skew: index at its most", unit="", value=most))
        found.append(Figure(name="skew: index at the end", unit="", value=sum(one.value for one in last) / len(last)))
        half = healed_after(index, 1 + (most - 1) / 2, begin)
        for name, value in (("time to fall below 1.3", healed_after(index, _HEALED, begin)), ("half-life", half)):
            if value is not None:
                found.append(Figure(name=f"skew: {name}", unit="s", value=value))
    if moves := _moves_per_second(plan, load):
        # On average, each client's connection moves to a random server after 1 / moves seconds, so that the excess
        # over an even share falls by exp(-moves * t).
        found.append(Figure(name="skew: half-life by the model", unit="s", value=math.log(2) / moves))
    return found


def _moves_per_second(plan: Plan, load: SteadyLoad) -> float:
    """Return how often a client's connection moves per second, by the flag of the plan's own lab."""
    flag = plan.rehearsal.flags.get(LabComponent.API_SERVER, {}).get("goaway-chance", "0")
    try:
        chance = float(flag)
    except ValueError:
        return 0.0
    return 0.0 if load.watch_only or load.protocol == "http1" else chance * load.rate


def _sum(load: SteadyLoad, name: str) -> int:
    return sum(getattr(second, name) for second in load.seconds)
