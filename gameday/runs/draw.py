"""The draw of a random season: plans, nodes and times by one seed, before anything changes.

Game-days begin as a Poisson process: the gaps are exponential, so the past tells nothing about the next beginning.
Plans and nodes are drawn by rendezvous hashing: the lowest hash of seed and name wins. So a plan or node that is new or
gone changes only the game-days that it wins or won.
"""

from __future__ import annotations

import hashlib
import math
import random
import shlex
from collections.abc import Mapping, Sequence
from datetime import timedelta

from gameday.cluster.profile import ClusterProfile
from gameday.documents.fields import format_duration
from gameday.errors import RefusedError
from gameday.plan.catalogue import shipped_plans
from gameday.runs.assignment import FitNode, idle, too_few, usable_by
from gameday.runs.plans import ChosenPlan, read_plan, why_left_out
from gameday.runs.season_record import Assignment, DrawnNotPlaced, DrawnTime, LeftOut, RandomSettings

DRAWN_FROM = 64
"""Least number of fit nodes to draw from. The seed chooses them, and each costs a request or two. Our own choice."""
DEFAULT_MEAN_GAP = timedelta(minutes=5)
"""Mean time between beginnings: twelve game-days an hour. Our own choice."""
SEEDS = 1_000_000
"""Number of seeds to draw from if none is given, so that a seed is short enough to be read out."""
BESIDE_THE_WAITS = timedelta(seconds=30)
"""The time for injection, the repair of a virtual node, QA and undo, in addition to a plan's waits. Rehearsed game-days
of the main plan, with waits of 21 s, took 19 to 47 s (docs/coverage.md, At random)."""
# Each game-day takes a minute or so and is named on the season's page. Our own choice.
_MOST_DRAWN = 1000


def refuse_settings(asked: RandomSettings) -> None:
    """Refuse a budget or mean gap that cannot be drawn from. Raises RefusedError."""
    if asked.mean_gap <= timedelta() or asked.budget / asked.mean_gap > _MOST_DRAWN:
        least = format_duration(timedelta(seconds=max(1, round(asked.budget / _MOST_DRAWN / timedelta(seconds=1)))))
        why = (
            f"a mean gap of {format_duration(asked.mean_gap)} draws more than {_MOST_DRAWN} game-days from this budget"
        )
        raise RefusedError(why, f"--mean-gap {least} or longer")


def usual_duration(one: ChosenPlan, cluster: ClusterProfile, before: Mapping[str, timedelta]) -> timedelta:
    """Return how long a game-day of the plan usually takes, and never more than it may.

    Args:
        one: The plan.
        cluster: The cluster. A virtual one repairs its nodes in seconds.
        before: What game-days have taken here, by the plan's name. For any other plan the waits, the longest time of
            its repair, and BESIDE_THE_WAITS are added up.
    """
    repair = timedelta() if cluster.rehearsal else one.plan.recover.within
    takes = before.get(one.plan.name, one.longest_wait + repair + BESIDE_THE_WAITS)
    return min(takes, cluster.guardrails.longest_run(one.plan.guardrails))


def plans_to_draw(
    names: Sequence[str],
    *,
    cluster: ClusterProfile,
    at_once: int,
    budget: timedelta,
    before: Mapping[str, timedelta],
) -> tuple[list[ChosenPlan], list[LeftOut]]:
    """Return the plans that a random season draws from, and the others with the reason.

    Dangerous ones are among them if the cluster allows their fault, whether they are named or not: nobody asks for
    the one that is drawn.

    Args:
        names: Shipped plans' names or paths; none: every shipped plan.
        cluster: The cluster, with the team's own detector profiles.
        at_once: Nodes that may be broken at the same time.
        budget: The season's budget.
        before: As for `usual_duration`.

    Raises:
        DocumentError: A plan cannot be read.
        RefusedError: None is left to draw from; the hint has the smallest budget, if a longer one helps.
    """
    chosen: list[ChosenPlan] = []
    left_out: list[LeftOut] = []
    too_long: dict[str, timedelta] = {}
    for name in dict.fromkeys(names or shipped_plans()):
        one, written, why = read_plan(name, cluster.detector_profiles, cluster)
        why = why or _why_not_drawn(one, cluster, named=bool(names))
        why = why or why_left_out(one, written, named=True, dangerous=True, within=None, at_once=at_once)
        if not why and (takes := usual_duration(one, cluster, before)) > budget:
            too_long[one.plan.name] = takes
            why = f"it takes about {format_duration(_in_tens(takes))}, longer than the budget"
        if why:
            left_out.append(LeftOut(plan=one.plan.name, title=one.plan.title, why=why))
        else:
            chosen.append(one)
    if not chosen:
        raise _nothing_to_draw(left_out, too_long)
    return chosen, left_out


def _nothing_to_draw(left_out: Sequence[LeftOut], too_long: Mapping[str, timedelta]) -> RefusedError:
    """Return the refusal with the smallest budget that helps; `too_long`: duration of plans that only it rules out."""
    none = f"of {len(left_out)} plans none can be drawn"
    if too_long:
        shortest = min(too_long, key=lambda name: too_long[name])
        least = format_duration(_in_tens(too_long[shortest]))
        return RefusedError(f"{none}: the shortest, {shortest}, takes about {least}", f"--budget {least} or longer")
    first = f": {left_out[0].plan}: {left_out[0].why}" if left_out else ""
    return RefusedError(f"{none}{first}", "name other plans")


def draw_times(asked: RandomSettings, seed: int) -> list[float]:
    """Return when game-days begin, in seconds from the season's first moment, up to the end of the budget."""
    generator = random.Random(seed)  # noqa: S311 - a stated, repeatable choice
    times: list[float] = []
    at = 0.0
    while (at := at + generator.expovariate(1 / asked.mean_gap.total_seconds())) <= asked.budget.total_seconds():
        times.append(at)
    return times


def draw(
    season: str,
    chosen: Sequence[ChosenPlan],
    nodes: Sequence[FitNode],
    asked: RandomSettings,
    seed: int,
    takes: Mapping[str, timedelta],
) -> tuple[list[Assignment], list[DrawnNotPlaced]]:
    """Draw a season's game-days.

    A game-day that would usually pass the end of the budget is drawn all the same and not placed, so that
    every plan is drawn with the same probability.

    Args:
        season: The season's id, with which the ids of its runs begin.
        chosen: The plans to draw from.
        nodes: The fit nodes.
        asked: Budget and mean gap.
        seed: The season's seed.
        takes: How long a game-day of each plan usually takes.

    Returns:
        The runs in the order of their times, and the game-days without time or nodes.
    """
    places: list[Assignment] = []
    not_placed: list[DrawnNotPlaced] = []
    ordered = sorted(chosen, key=lambda one: one.plan.name)
    for number, at_s in enumerate(draw_times(asked, seed) if ordered else (), 1):
        own = _hash(seed, f"game-day {number}") % 2**32
        one = min(ordered, key=lambda one: _hash(own, one.plan.name))
        latest_s = (asked.budget - takes[one.plan.name]).total_seconds()
        fit = sorted(usable_by(one, nodes), key=lambda node: (idle(one, node), _hash(own, node.name)))
        why = too_few(one, len(fit)) if at_s <= latest_s else _past_the_end(takes[one.plan.name])
        if why:
            not_placed.append(DrawnNotPlaced(plan=one.plan.name, title=one.plan.title, why=why, at_s=at_s))
            continue
        places.append(
            Assignment(
                run_id=f"{season}-{number:02d}",
                plan=one.plan.name,
                asked_as=one.name,
                targets=tuple(node.name for node in fit[: one.plan.targets.nodes]),
                drawn=DrawnTime(at_s=at_s, latest_s=latest_s, seed=own),
            )
        )
    return places, not_placed


def random_season_command(plans: Sequence[str], seed: int, at_once: int, asked: RandomSettings, *others: str) -> str:
    """Return the shell line that draws and plays the same season again; `others` are further arguments."""
    times = ["--budget", format_duration(asked.budget), "--mean-gap", format_duration(asked.mean_gap)]
    numbers = ["--seed", str(seed), "--at-once", str(at_once)]
    return shlex.join(["gameday", "season", "--random", *plans, *numbers, *times, *others])


def _past_the_end(takes: timedelta) -> str:
    return f"it takes about {format_duration(_in_tens(takes))}, which would pass the end of the budget"


def _in_tens(takes: timedelta) -> timedelta:
    """Return the next whole ten seconds."""
    return timedelta(seconds=math.ceil(takes.total_seconds() / 10) * 10)


def _hash(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}\n{name}".encode()).digest()[:8], "big")


def _why_not_drawn(one: ChosenPlan, cluster: ClusterProfile, *, named: bool) -> str:
    """Return why a random season never draws this plan, however long it is; empty if it may."""
    plan = one.plan
    for fault, why in plan.dangers().items():
        if fault not in cluster.allow_dangerous:
            return f"{fault} is dangerous: {why}. Profile {cluster.name} does not name it in allow_dangerous"
    if plan.arms:
        return "it compares arms, which takes a game-day each, on the same nodes"
    if plan.recover.is_hands_off and not named:
        return "the cluster repairs the node, which not every cluster does. It is drawn where plans are named"
    return plan.fault.why_not_here(cluster.namespace, is_lab=cluster.lab_control is not None)
