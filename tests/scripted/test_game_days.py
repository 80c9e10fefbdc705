"""Whole game-days on a scripted cluster: the real steps, ledger, watches, guardrails and checks, in virtual time."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.flows.game_day import game_day as flow
from gameday.history.events import FaultInjected, HopSeen, IntentRecorded, StepEnded
from gameday.plan.load import LoadedPlan
from gameday.report.run_folder import judge_run_folder
from gameday.run.run import Run
from gameday.values.results import Cleanliness, Hop, Step, StepOutcome
from tests.support.runs import with_plan
from tests.support.scripted import game_day
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.game_day import Played, play, shipped
from tests.support.scripted.script import Away, Script
from tests.support.scripted.wire import Moment

PLAN = "gpu-fell-off-the-bus"


def bounded(within: timedelta, name: str = PLAN) -> LoadedPlan:
    """Return a plan with another bound for its alert, a fault that is held for as long, and the time for both."""
    loaded = shipped(name)
    alert = loaded.plan.expect.alerts[0].model_copy(update={"within": within})
    expect = loaded.plan.expect.model_copy(update={"alerts": (alert,)})
    fault = loaded.plan.fault.model_copy(update={"hold": within + timedelta(minutes=1)})
    guardrails = loaded.plan.guardrails.model_copy(update={"max_duration": within + timedelta(minutes=10)})
    return with_plan(loaded, expect=expect, fault=fault, guardrails=guardrails)


def fires_after(seconds: float) -> Callable[[Script], Script]:
    return lambda script: replace(script, fires=(seconds,), notified=(seconds + 0.1,))


def names_called(function: object) -> list[str]:
    """Return the names of the functions that are called in a function's source, in their order."""
    tree = ast.parse(inspect.getsource(function))  # type: ignore[arg-type]
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [(call.lineno, call.id) for call in calls if isinstance(call, ast.Name)]
    names += [
        (call.lineno, call.value.id)
        for call in calls
        if isinstance(call, ast.Attribute) and call.attr == "fn" and isinstance(call.value, ast.Name)
    ]
    return [name for _, name in sorted(names)]


def hops(played: Played) -> dict[Hop, float]:
    """Return when each hop of the chain was, in seconds after the fault."""
    (fault,) = played.history.of(FaultInjected)
    return {hop.hop: round((hop.at - fault.written_at).total_seconds(), 6) for hop in played.history.of(HopSeen)}


def test_the_steps_are_the_flows_own() -> None:
    steps = {str(step).replace(" ", "_") for step in Step}
    order = [name for name in names_called(flow.fn) if name in steps]
    assert [name for name in names_called(game_day.steps) if name in steps] == order
    assert len(order) == len(steps)


def test_the_chain_holds_and_nothing_is_left(reports: Path) -> None:
    played = play(PLAN, reports=reports)
    assert (played.outcome, played.not_held, played.cluster.left()) == (RunOutcome.PASSED, [], [])
    assert played.result.exit_code == 0
    assert judge_run_folder(played.folder).verdicts == played.verdicts
    assert hops(played) == {
        Hop.WRITTEN: 0.0,
        Hop.IN_LOG_STORE: 0.11,
        Hop.TAINTED: 0.21,
        Hop.SAMPLED: 0.6,
        Hop.RULE_PENDING: 0.6,
        Hop.RULE_FIRING: 0.6,
        Hop.NOTIFIED: 0.7,
    }


def test_a_real_xid_has_the_kernels_stamp_and_nvmls_event_on_the_same_clock(reports: Path) -> None:
    played = play("real-xid-31-application-error", reports=reports)
    timed = hops(played)
    assert (timed[Hop.WRITTEN], timed[Hop.LOGGED], timed[Hop.NVML_EVENT]) == (0.0, 0.002, 0.023)


def test_a_detector_that_is_off_fails_the_game_day(reports: Path) -> None:
    played = play(PLAN, Script.without_detector, reports=reports)
    assert (played.outcome, played.result.cleanliness) == (RunOutcome.FAILED, Cleanliness.CLEAN)
    assert played.status("alert-fires") is Status.BROKEN
    assert played.status("taint-set") is Status.BROKEN
    assert played.cluster.left() == []


def test_a_game_day_may_wait_ten_minutes_for_its_alert(reports: Path) -> None:
    """Play a fault that moves no work, under a lease that lasts as long: forty renewals would be a third of it."""
    plan = bounded(timedelta(minutes=11), "clock-lock")
    played = play(plan, fires_after(600.0), reports=reports, lease_duration_s=600)
    assert (played.outcome, played.not_held, played.cluster.left()) == (RunOutcome.PASSED, [], [])
    assert hops(played)[Hop.RULE_FIRING] == 600.0


@pytest.mark.parametrize(
    ("late_ms", "status", "outcome"), [(-1, Status.HELD, RunOutcome.PASSED), (1, Status.BROKEN, RunOutcome.FAILED)]
)
def test_a_bound_is_kept_or_broken_by_a_millisecond(
    late_ms: int, status: Status, outcome: RunOutcome, reports: Path
) -> None:
    played = play(PLAN, fires_after(15.0 + late_ms / 1000), reports=reports)
    assert (played.status("alert-fires"), played.outcome) == (status, outcome)
    assert played.cluster.left() == []


def test_a_prometheus_that_is_away_refuses_the_game_day(reports: Path) -> None:
    played = play(PLAN, lambda script: replace(script, away=(Away("prometheus", 0.0, 600.0),)), reports=reports)
    assert (played.outcome, played.result.exit_code) == (RunOutcome.REFUSED, 5)
    assert "connection refused" in played.result.why
    assert played.history.of(IntentRecorded) == []
    assert played.cluster.left() == []


def test_a_signal_while_the_fault_goes_in_aborts_and_undoes(reports: Path) -> None:
    runs: list[Run] = []

    def steps(run: Run) -> None:
        runs.append(run)
        game_day.steps(run)

    def on_request(method: str, path: str, moment: Moment) -> None:
        if (method, moment) == ("POST", "after") and path.endswith("/pods") and runs[0].record.step is Step.INJECT:
            runs[0].record.abort.request("operator", "SIGINT received")

    def prepare(cluster: ScriptedCluster) -> None:
        cluster.on_request = on_request

    played = play(PLAN, reports=reports, prepare=prepare, act=steps)
    assert (played.outcome, played.result.cleanliness) == (RunOutcome.ABORTED, Cleanliness.CLEAN)
    ended = {event.step: event.outcome for event in played.history.of(StepEnded)}
    assert ended[Step.INJECT] is StepOutcome.ABORTED
    assert played.cluster.left() == []
