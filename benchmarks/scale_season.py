"""Seasons over very many nodes: the assignment, and the whole season in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence

from benchmarks.scale_figures import Figure, in_a_child
from gameday.cluster.nodes import GPU_COUNT_LABEL
from gameday.runs.assignment import FitNode, RunQueue, assign
from gameday.runs.plans import ChosenPlan, choose_plans, plans_that_run_alone
from gameday.runs.season_record import Assignment

_MINUTE_S = 60.0
_AT_ONCE = (4, 40)
_NODES_PER_RACK = 4


def season_figures(nodes: int) -> Iterator[Figure]:
    """Yield how long the catalogue takes when a game-day takes a minute, and what assigning its nodes takes."""
    for at_once in _AT_ONCE:
        few, many = (in_a_child(_catalogue, at_once, count) for count in (100, nodes))
        yield Figure(
            f"season of the catalogue, {at_once} nodes broken at once",
            "plans / at once, in minutes",
            f"100 nodes: {few.answer}; {nodes} nodes: {many.answer}; {many}",
        )


def _catalogue(at_once: int, nodes: int) -> str:
    chosen, _ = choose_plans((), within=None, at_once=at_once, rehearsed=True)
    places, _ = assign("scale", chosen, [_fit_node(number) for number in range(nodes)])
    alone = plans_that_run_alone(chosen)
    return f"{len(places)} game-days, {len(alone)} of them alone, {_minutes(places, chosen, at_once)}"


def _minutes(places: Sequence[Assignment], chosen: Sequence[ChosenPlan], at_once: int) -> str:
    longest = {one.plan.name: one.longest_wait.total_seconds() for one in chosen}
    alone = plans_that_run_alone(chosen)
    a_minute = _length_s(RunQueue(places, at_once, alone), lambda _: _MINUTE_S) / 60
    bounds = _length_s(RunQueue(places, at_once, alone), lambda one: longest[one.plan]) / 60
    return f"{a_minute:.0f} min of a minute each, {bounds:.0f} min if each takes as long as its plan's bounds let it"


def _length_s(queue: RunQueue, lasts_s: Callable[[Assignment], float]) -> float:
    """Play a season in virtual time; return how long it takes."""
    now, running = 0.0, list[tuple[float, str]]()
    while queue or running:
        for one in queue.startable(now):
            heapq.heappush(running, (now + lasts_s(one), one.run_id))
        now, ended = heapq.heappop(running)
        queue.ended(ended)
    return now


def _fit_node(number: int) -> FitNode:
    labels = {GPU_COUNT_LABEL: "8", "topology.kubernetes.io/rack": f"rack-{number // _NODES_PER_RACK:05d}"}
    return FitNode(f"node-{number}", labels, busy=True)
