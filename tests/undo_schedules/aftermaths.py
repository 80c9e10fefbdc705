"""The time after a run was killed: its pods' own deadlines act, and the reaper comes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from gameday.errors import AdapterError
from gameday.reaper.late_quarantine import detector_bound
from gameday.reaper.reap import reap
from gameday.run.agents import injector_deadline
from tests.support.scripted.cluster import ScriptedCluster, Snapshot
from tests.support.scripted.script import AgentScript
from tests.support.scripted.wire import Fate, Moment
from tests.undo_schedules.instants import Instant, left_of, loaded

REAPER_EVERY_S = 300.0
"""The interval of the reaper's deployment in prefect.yaml, and of the CronJob in deploy/."""
_LEASE_S = 30.0
_HOUR = timedelta(hours=1)
_FROZEN_S = 60.0
# A pod of ours starts, takes its fault out and is gone within this, beyond its own deadline, as the script has it.
_POD_S = 2.0
# One reap that was not disturbed; beyond that the next visit has to do it.
_VISITS = 2


@dataclass(frozen=True)
class Aftermath:
    """What follows a kill; the defaults disturb nothing."""

    name: str
    first_visit_s: float = REAPER_EVERY_S
    wall_jump: timedelta = timedelta()
    """How wrong the reaper's wall clock is."""
    fate: Fate | None = None
    """What becomes of one of the first visit's requests: a different one from instant to instant."""
    freezes: bool = False
    """The first reaper is suspended for a minute before one of its requests, and another one comes meanwhile."""
    kills_injector: bool = False
    """The injector dies with the run, without a word, and its fault stays in."""


AFTERMATHS = (
    Aftermath("the reaper comes at once", first_visit_s=0.0),
    Aftermath("the reaper comes when the lease is over", first_visit_s=_LEASE_S + 1.0),
    Aftermath("the reaper comes at its next visit"),
    Aftermath("the reaper's clock is an hour ahead", wall_jump=_HOUR),
    Aftermath("the reaper's clock is an hour behind", first_visit_s=0.0, wall_jump=-_HOUR),
    Aftermath("an answer to the reaper is lost", first_visit_s=_LEASE_S + 1.0, fate="lost"),
    Aftermath("a request of the reaper is doubled", first_visit_s=_LEASE_S + 1.0, fate="doubled"),
    Aftermath("the reaper is frozen for a minute", first_visit_s=_LEASE_S + 1.0, freezes=True),
    Aftermath("the injector is killed with the run", first_visit_s=_LEASE_S + 1.0, kills_injector=True),
)
# A reaper asks for so much in a visit that undoes a whole run; the disturbed request goes round them.
_REQUESTS = 14


def after_kill(plan: str, instant: Instant, aftermath: Aftermath) -> list[str]:
    """Return what is left past the bound after a kill at this instant; nothing, if all is well."""
    cluster = _cluster_after(instant.snapshot, aftermath)
    cluster.clock.sleep(aftermath.first_visit_s)
    cluster.clock.jump(aftermath.wall_jump)
    nth = instant.state % _REQUESTS
    _disturb(cluster, aftermath, nth)
    visit(cluster)
    cluster.on_request = None
    # The undo of a quarantine stays open while the plan still lets the detector set one, by the reaper's wall clock.
    wait_s = detector_bound(loaded(plan).plan).total_seconds() + abs(aftermath.wall_jump.total_seconds())
    visits = _VISITS + int(wait_s / REAPER_EVERY_S)
    for _ in range(visits):
        if not left_of(cluster, plan):
            return []
        cluster.clock.sleep(REAPER_EVERY_S)
        visit(cluster)
    return left_of(cluster, plan)


def after_deadline(plan: str, instant: Instant) -> list[str]:
    """Return the faults that are in, although nobody came, once the injectors' own deadlines are over."""
    cluster = ScriptedCluster.from_snapshot(instant.snapshot)
    deadline = injector_deadline(loaded(plan).plan.fault)
    cluster.clock.sleep(deadline.total_seconds() + _POD_S)
    return [f"fault of {pod} on {node}" for node, pod in sorted(cluster.faults_in)]


def visit(cluster: ScriptedCluster) -> None:
    """Let the reaper come once, as its schedule starts it; an error ends the visit, and the next one goes on."""
    kubernetes = cluster.kubernetes("gameday-reaper")
    try:
        with suppress(AdapterError):
            reap(kubernetes)
    finally:
        kubernetes.close()


def _cluster_after(snapshot: Snapshot, aftermath: Aftermath) -> ScriptedCluster:
    if aftermath.kills_injector:
        killed = {**snapshot.script.agents, "inject": AgentScript(is_killed=True)}
        snapshot = replace(snapshot, script=replace(snapshot.script, agents=killed))
    return ScriptedCluster.from_snapshot(snapshot)


def _disturb(cluster: ScriptedCluster, aftermath: Aftermath, nth: int) -> None:
    if aftermath.fate:
        fate = aftermath.fate
        cluster.on_request = at_request(nth, lambda: fate)
    elif aftermath.freezes:

        def freeze() -> None:
            cluster.on_request = None
            cluster.clock.freeze(_FROZEN_S / 2)
            visit(cluster)
            cluster.clock.freeze(_FROZEN_S / 2)

        cluster.on_request = at_request(nth, freeze)


def at_request(nth: int, act: Callable[[], Fate | None]) -> Callable[[str, str, Moment], Fate | None]:
    """Return a wire's decision that acts before its nth request, and lets all others pass."""
    asked = -1

    def on_request(method: str, path: str, moment: Moment) -> Fate | None:
        nonlocal asked
        if moment == "before":
            asked += 1
            if asked == nth:
                return act()
        return None

    return on_request
