"""Runs that go on after something went wrong at one of their requests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from gameday.values.results import Cleanliness
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.game_day import play_on
from tests.support.scripted.wire import Fate
from tests.undo_schedules.aftermaths import REAPER_EVERY_S, at_request, visit
from tests.undo_schedules.instants import fresh_cluster, left_of, loaded

_HOUR = timedelta(hours=1)
_FROZEN_S = 60.0
_VISITS = 3
Disturbance = Callable[[ScriptedCluster], Fate | None]


def _loses_the_answer(cluster: ScriptedCluster) -> Fate:
    return "lost"


def _carries_it_out_twice(cluster: ScriptedCluster) -> Fate:
    return "doubled"


def _freezes(cluster: ScriptedCluster) -> None:
    cluster.clock.freeze(_FROZEN_S)


def _freezes_while_the_reaper_comes(cluster: ScriptedCluster) -> None:
    disturb, cluster.on_request = cluster.on_request, None
    cluster.clock.freeze(_FROZEN_S / 2 + 1.0)  # the lease of 30 s is over
    visit(cluster)
    cluster.on_request = disturb


def _jumps_ahead(cluster: ScriptedCluster) -> None:
    cluster.clock.jump(_HOUR)


def _jumps_back(cluster: ScriptedCluster) -> None:
    cluster.clock.jump(-_HOUR)


DISTURBANCES: dict[str, Disturbance] = {
    "an answer is lost": _loses_the_answer,
    "a request is carried out twice": _carries_it_out_twice,
    "the run is frozen for a minute": _freezes,
    "the run is frozen, and the reaper comes meanwhile": _freezes_while_the_reaper_comes,
    "the wall clock jumps an hour ahead": _jumps_ahead,
    "the wall clock jumps an hour back": _jumps_back,
}


def after_disturbance(plan: str, disturbance: str, nth: int, reports: Path) -> list[str]:
    """Return what is wrong after a run whose nth request was disturbed; nothing, if all is well.

    A run that says *clean* has left nothing. One that says *dirty* may keep a node out of service, for a person, with
    its ledger. Whatever else is left is gone after the reaper's visits.
    """
    cluster = fresh_cluster(loaded(plan))
    cluster.on_request = at_request(nth, lambda: DISTURBANCES[disturbance](cluster))
    played = play_on(cluster, loaded(plan), reports=reports)
    cluster.on_request = None
    left = left_of(cluster, plan)
    said = played.result.cleanliness
    wrong = [f"the run says clean: {one}" for one in left if said is Cleanliness.CLEAN]
    for _ in range(_VISITS):
        if said is Cleanliness.DIRTY:
            left = [one for one in left if not one.startswith("configmaps/") and not one.endswith("out of service")]
        if not left:
            return wrong
        cluster.clock.sleep(REAPER_EVERY_S)
        visit(cluster)
        left = left_of(cluster, plan)
    return wrong + left
