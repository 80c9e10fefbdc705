"""Every instant at which a run can be stopped, from one play of its plan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gameday.history.events import Event
from gameday.plan.catalogue import package_plans, shipped_plans
from gameday.plan.load import LoadedPlan
from tests.support.scripted.cluster import ScriptedCluster, Snapshot
from tests.support.scripted.game_day import play_on, shipped
from tests.support.scripted.script import Script
from tests.support.scripted.wire import Moment

NODES = 4
"""As many as the shipped plan with the most targets asks for, and one to which work can go."""


@dataclass(frozen=True)
class Instant:
    """A moment of a run, and the cluster that the run leaves if it is killed there."""

    what: str
    state: int
    """The number of the cluster that is left: instants between which only our own code ran have the same."""
    snapshot: Snapshot


@cache
def plans() -> tuple[str, ...]:
    """Return the names of all shipped plans."""
    return (*shipped_plans(), *package_plans())


@cache
def loaded(name: str) -> LoadedPlan:
    """Return a shipped plan, and of one that compares arms its first arm."""
    return shipped(name).played[0]


def fresh_cluster(plan: LoadedPlan) -> ScriptedCluster:
    """Return a healthy cluster that does what the plan expects."""
    return ScriptedCluster(Script.as_expected(plan.plan), nodes=NODES)


@cache
def instants(name: str, reports: Path) -> tuple[Instant, ...]:
    """Return every instant of a plan's run: before and after each event of its history and each of its requests."""
    plan = loaded(name)
    cluster = fresh_cluster(plan)
    found: list[Instant] = []

    def take(what: str) -> None:
        now = cluster.snapshot()
        last = found[-1] if found else None
        if last and last.snapshot == now:
            found.append(Instant(what, last.state, last.snapshot))
        else:
            found.append(Instant(what, last.state + 1 if last else 0, now))

    def on_request(method: str, path: str, moment: Moment) -> None:
        take(f"{moment} {method} {path}")

    def on_write(event: Event, moment: Moment) -> None:
        take(f"{moment} {type(event).__name__} is in the history")

    cluster.on_request = on_request
    play_on(cluster, plan, reports=reports, on_write=on_write)
    return tuple(found)


def requests(name: str, reports: Path) -> list[str]:
    """Return the requests of a plan's run, in their order."""
    whats = (instant.what for instant in instants(name, reports))
    return [what.removeprefix("before ") for what in whats if what.startswith("before ") and "/" in what]


def left_of(cluster: ScriptedCluster, name: str) -> list[str]:
    """Return what a plan's run has left of what it is to undo: in a hands-off game-day not the quarantine."""
    hands_off = loaded(name).plan.recover.is_hands_off
    return [one for one in cluster.left() if not (hands_off and one.endswith("out of service"))]
