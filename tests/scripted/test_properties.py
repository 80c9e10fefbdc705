"""Random game-days: whatever the cluster does, the run judges everything, invents nothing, and cleans up.

Each example draws a script: when lines, taints and alerts come, if ever, and how often; which agents fail; which
servers are away; which answers are lost or doubled; when the wall clock jumps, a node goes, or somebody aborts. What is
true is read from the script and from the cluster, and never from the run's own history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from gameday.checks.outcome import EXIT_CODES, RunOutcome
from gameday.checks.verdict import Status
from gameday.history.events import FaultInjected, NodeReturned
from gameday.plan.models import Plan
from gameday.reaper.late_quarantine import detector_bound
from gameday.run.run import Run
from gameday.values.dated import CLOCK_TOLERANCE_S
from gameday.values.nodes import Taint
from gameday.values.results import Cleanliness
from tests.support.scripted import game_day
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.game_day import Played, play_on, shipped
from tests.support.scripted.script import AgentScript, Away, Script, Times
from tests.support.scripted.wire import Fate, Moment
from tests.support.virtual_clock import VirtualClock

PLANS = ("gpu-fell-off-the-bus", "xid-13-application-error", "xid-95-uncontained-ecc", "dcgm-gpu-temperature")
TAINT = Taint(key="trainy.konduktor.ai/faulty", value="true", effect="NoSchedule")
ALERTS: tuple[tuple[str, dict[str, str]], ...] = (("GPUFellOffTheBus", {}),)
_WATCHED_FOR = timedelta(seconds=10)
"""Shorter than the time for which any of the plans looks for other alerts; it ends early only with the fault."""
SETTLED_S = 120.0
"""Longer than any pod of ours takes to go once it was deleted."""


@dataclass(frozen=True)
class Accidents:
    """Events beside the script, by seconds of the clock; the run begins at 1."""

    jumps: tuple[tuple[float, int], ...] = ()
    fates: Mapping[int, Fate] = field(default_factory=dict)
    """The fate of the nth request."""
    node_goes_s: float | None = None
    aborts_s: float | None = None


def seconds(most: float) -> st.SearchStrategy[float]:
    """Whole milliseconds, which a report's words can tell apart."""
    return st.integers(1, round(most * 1000)).map(lambda ms: ms / 1000)


def times(most: float) -> st.SearchStrategy[Times]:
    return st.lists(seconds(most), max_size=2).map(lambda found: tuple(sorted(found)))


AGENTS = st.builds(
    AgentScript,
    starts_s=seconds(5),
    works_s=seconds(5),
    undoes_s=seconds(5),
    error=st.sampled_from(("", "", "", "the host said no")),
    cleanliness=st.sampled_from((Cleanliness.CLEAN, Cleanliness.CLEAN, Cleanliness.DIRTY, Cleanliness.UNKNOWN)),
    is_killed=st.sampled_from((False, False, False, True)),
)
ROLES = st.sampled_from(("mark", "sample", "inject", "undo", "remediate", "qa"))
AWAY = st.builds(
    lambda server, since_s, for_s: Away(server, since_s, since_s + for_s),
    st.sampled_from(("kubernetes", "prometheus", "alertmanager", "loki")),
    seconds(120),
    seconds(60),
)
SCRIPTS = st.fixed_dictionaries(
    {},
    optional={
        "line_arrives": times(20),
        "tainted": times(40),
        "fires": times(40),
        "notified": times(40),
        "resolves_s": seconds(60),
        "latency_s": seconds(3),
        "scheduled_s": seconds(3),
        "reboot_s": seconds(120),
        "agents": st.dictionaries(ROLES, AGENTS, max_size=2),
        "away": st.lists(AWAY, max_size=2).map(tuple),
    },
)
FATES: st.SearchStrategy[Fate] = st.sampled_from(("lost", "doubled", "refused"))
ACCIDENTS = st.builds(
    Accidents,
    jumps=st.lists(st.tuples(seconds(120), st.integers(-3600, 3600)), max_size=2).map(tuple),
    fates=st.dictionaries(st.integers(0, 150), FATES, max_size=3),
    node_goes_s=st.none() | seconds(120),
    aborts_s=st.none() | seconds(120),
)


def script_of(plan: Plan, changes: Mapping[str, Any]) -> Script:
    """Return a script whose detector may say what the plan does not expect; unchanged, it does as expected."""
    unexpected: dict[str, Any] = {} if plan.expect.alerts else {"alerts": ALERTS, "fires": ()}
    unexpected |= {} if plan.expect.taints else {"taints": (TAINT,), "tainted": ()}
    return replace(Script.as_expected(plan), **(unexpected | dict(changes)))


def played(plan: str, changes: Mapping[str, Any], accidents: Accidents, reports: Path) -> Played:
    """Play a game-day to which all of this happens, and give the cluster time to settle."""
    loaded = shipped(plan)
    clock = VirtualClock()
    cluster = ScriptedCluster(script_of(loaded.plan, changes), clock)
    runs: list[Run] = []
    requests = iter(range(1_000_000))

    def steps(run: Run) -> None:
        runs.append(run)
        game_day.steps(run)

    def on_request(method: str, path: str, moment: Moment) -> Fate | None:
        return accidents.fates.get(next(requests)) if moment == "before" else None

    def abort() -> None:
        for run in runs:
            run.record.abort.request("operator", "somebody aborts")

    for at, by_s in accidents.jumps:
        clock.at(at, partial(clock.jump, timedelta(seconds=by_s)))
    if accidents.node_goes_s is not None:
        clock.at(accidents.node_goes_s, partial(cluster.remove_node, "gpu-node-1"))
    if accidents.aborts_s is not None:
        clock.at(accidents.aborts_s, abort)
    if accidents.fates:
        cluster.on_request = on_request
    found = play_on(cluster, loaded, reports=reports, act=steps)
    clock.sleep(SETTLED_S)
    return found


def judge(found: Played, accidents: Accidents) -> None:
    """Hold a game-day to the promises."""
    every_expectation_has_a_verdict(found)
    # Where clocks disagree by no more than this, a verdict stands, and may be wrong by as much.
    nothing_held_that_was_not_so(found, timedelta(seconds=CLOCK_TOLERANCE_S if accidents.jumps else 0))
    what_is_left_is_said(found)
    outcome_and_state_agree(found)


def every_expectation_has_a_verdict(found: Played) -> None:
    assert calm(found.plan.name) <= {one.check for one in found.verdicts}


def nothing_held_that_was_not_so(found: Played, unsure: timedelta) -> None:
    held = {one.check for one in found.verdicts if one.status is Status.HELD}
    world, script, plan = found.cluster.world, found.cluster.script, found.plan
    struck = world.struck_at
    if "fault-in" in held:
        assert struck is not None
    if "alert-fires" in held:
        assert struck is not None
        for expected in plan.expect.alerts:
            until = struck + expected.within + unsure
            assert any(one.name == expected.name and one.fired <= until for one in world.alerts)
    if "alert-resolves" in held:
        assert all(one.ended for one in world.alerts)
    if "taint-set" in held:
        assert any(timedelta(seconds=one) <= plan.expect.taints[0].within + unsure for one in script.tainted)
    if "stays-schedulable" in held:
        assert (quiet := plan.expect.stays_schedulable_for)
        assert not [one for one in script.tainted if timedelta(seconds=one) <= quiet - unsure]
    if "forbidden-severities" in held:
        until = min(world.out_at or found.cluster.now(), struck + _WATCHED_FOR) if struck else found.cluster.now()
        assert not [one for one in world.alerts if one.fired < until]
    for check, role in (("qa", "qa"), ("remediation", "remediate")):
        agent = script.agent(role)
        assert check not in held or not (agent.error or agent.is_killed), check
    if "undo-proof" in held:
        assert faults_left(found) == []


def faults_left(found: Played) -> list[str]:
    """Return the faults that are still in, on nodes that are there."""
    nodes = {node.name for node in found.cluster.server.store["nodes"].all()}
    return sorted(node for node, _ in found.cluster.faults_in if node in nodes)


def what_is_left_is_said(found: Played) -> None:
    if found.result.cleanliness is not Cleanliness.CLEAN:
        return
    left = [one for one in found.cluster.left() if not one.startswith("fault of ")]
    returned = found.history.of(NodeReturned) or not found.history.of(FaultInjected)
    tainted, bound = found.cluster.script.tainted, detector_bound(found.plan).total_seconds()
    # A detector that taints the node when the game-day has returned it, or was never to touch it, is not undone. Nor is
    # one that taints it a second time, or later than the plan allows: a run that stops early does not wait for that.
    # And a lease that cannot be given back expires by itself.
    excused = ("out of service",) if returned or len(tainted) > 1 or max(tainted, default=0) > bound else ()
    if any(away.server == "kubernetes" for away in found.cluster.script.away):
        left = [one for one in left if not one.startswith("leases.")]
    ours = [one for one in left if not one.endswith(excused)]
    assert (ours, faults_left(found)) == ([], [])
    assert not any(node.obj["spec"].get("unschedulable") for node in found.cluster.server.store["nodes"].all())


def outcome_and_state_agree(found: Played) -> None:
    result, statuses = found.result, {one.status for one in found.verdicts}
    if result.outcome is RunOutcome.PASSED:
        assert statuses <= {Status.HELD, Status.NOT_ASKED}
    if result.outcome is RunOutcome.REFUSED:
        assert found.history.of(FaultInjected) == []
    if result.cleanliness is Cleanliness.CLEAN:
        assert result.exit_code == EXIT_CODES[result.outcome]
    else:
        assert result.exit_code == {Cleanliness.DIRTY: 4, Cleanliness.UNKNOWN: 2}[result.cleanliness]


@cache
def calm(plan: str) -> frozenset[str]:
    """Return the checks of a game-day to which nothing happens."""
    with TemporaryDirectory() as folder:
        return frozenset(one.check for one in played(plan, {}, Accidents(), Path(folder)).verdicts)


@pytest.mark.parametrize("plan", PLANS)
@given(changes=SCRIPTS, accidents=ACCIDENTS)
@settings(
    max_examples=settings().max_examples // len(PLANS),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    report_multiple_bugs=False,
    # To explain a counterexample, every line of it would be traced.
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
def test_whatever_happens(plan: str, changes: Mapping[str, Any], accidents: Accidents, reports: Path) -> None:
    found = played(plan, changes, accidents, reports)
    note(f"{found.result} left {found.cluster.left()}")
    judge(found, accidents)
