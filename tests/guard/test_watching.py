from __future__ import annotations

import threading

import pytest

from gameday.errors import AbortedError, RefusedError, StopRunError
from gameday.guard.base import Measurement
from gameday.guard.check import guard_before, under_guardrails
from gameday.guard.guardrails.stop_alerts import StopAlerts
from gameday.history.events import GuardChecked
from gameday.values.results import Step
from tests.guard.observations import FakeRun, firing, node, plan, pod, profile
from tests.support.virtual_clock import VirtualClock

PATIENCE_S = 60.0


def stopped(run: FakeRun) -> StopRunError | None:
    """What stops the run while it is watched; None when nothing does."""
    with under_guardrails(run):  # type: ignore[arg-type]
        try:
            run.record.abort.sleep(PATIENCE_S)
        except StopRunError as error:
            return error
    return None


def checks(run: FakeRun) -> list[GuardChecked]:
    return [event for event in run.events if isinstance(event, GuardChecked)]


def test_a_guardrail_that_trips_while_the_fault_is_in_aborts_the_run() -> None:
    run = FakeRun(plan(), profile(), node("a"), clock=VirtualClock())
    run.nodes.current["a"] = node("a", labels={})
    error = stopped(run)
    assert isinstance(error, AbortedError)
    assert error.by == "guard"
    assert "a no longer carries gameday.dev/opt-in=true" in error.why
    tripped = [one for one in checks(run) if one.ok is False]
    assert {one.guardrail for one in tripped} == {"opt-in"}
    assert {one.phase for one in tripped} == {"during"}


def test_a_pod_that_lands_on_the_target_later_aborts_the_run() -> None:
    run = FakeRun(plan(), profile(), node("a"), clock=VirtualClock())
    run.nodes.pods["a"].append(pod("dns", "kube-system"))
    error = stopped(run)
    assert error is not None
    assert "kube-system/dns on a" in error.why


def test_what_trips_before_anything_is_broken_refuses_the_run() -> None:
    run = FakeRun(plan(), profile(stop_alerts=["FleetDown"]), node("a"), clock=VirtualClock())
    run.record.step = Step.BASELINE
    run.servers.prometheus.active = [firing("FleetDown")]
    assert isinstance(stopped(run), RefusedError)


def test_a_guardrail_that_stays_unmeasured_for_half_a_minute_aborts_the_run() -> None:
    run = FakeRun(plan(), profile(stop_alerts=["FleetDown"]), node("a"), clock=VirtualClock())
    run.servers.prometheus.down = True
    error = stopped(run)
    assert error is not None
    assert "not measured" in error.why
    # Looks are 5 s apart, from the first tick on: that after 30 s is not yet more than 30 s late.
    assert run.clock.monotonic() == pytest.approx(35.1)


def test_a_server_that_does_not_answer_does_not_hold_up_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the machine's clock: the looks that ask a server are a thread of their own."""
    asked, answer = threading.Event(), threading.Event()

    def hang(*_: object) -> Measurement:
        asked.set()
        answer.wait(PATIENCE_S)
        return Measurement(True, "")

    monkeypatch.setattr(StopAlerts, "measure", hang)
    limits = {"max_duration": "1s", "stop_alerts": ["FleetDown"]}
    run = FakeRun(plan(guardrails=limits, expect={"taints": [TAINT]}), profile(), node("a"))
    error = stopped(run)
    answer.set()
    assert asked.is_set()
    assert error is not None
    assert "longer than guardrails.max_duration" in error.why


def test_what_needs_targets_is_not_looked_at_before_they_are_chosen() -> None:
    run = FakeRun(plan(guardrails={"max_duration": "1s"}, expect={"taints": [TAINT]}), profile(), clock=VirtualClock())
    error = stopped(run)
    assert error is not None
    assert "longer than guardrails.max_duration" in error.why
    assert "opt-in" not in {one.guardrail for one in checks(run)}


def test_the_looks_of_a_quiet_run_are_counted_once_it_ends() -> None:
    run = FakeRun(plan(), profile(), node("a"), clock=VirtualClock())
    with under_guardrails(run), pytest.raises(AbortedError):  # type: ignore[arg-type]
        while True:
            run.record.abort.sleep(0.05)
            if run.asked_often():
                run.record.abort.request("operator", "enough")
    quiet = {one.guardrail: one for one in checks(run)}
    assert quiet["opt-in"].ok is True
    assert quiet["opt-in"].looks >= 2


@pytest.mark.parametrize("down", [False, True], ids=["it trips", "it cannot be measured"])
def test_before_the_fault_every_doubt_is_a_refusal(down: bool) -> None:
    run = FakeRun(plan(), profile(stop_alerts=["FleetDown"]), node("a"), clock=VirtualClock())
    run.servers.prometheus.active, run.servers.prometheus.down = [firing("FleetDown")], down
    with pytest.raises(RefusedError, match="stop-the-line alerts"):
        guard_before(run, run.targets)  # type: ignore[arg-type]
    assert {one.guardrail for one in checks(run)} >= {"stop-the-line alerts", "nodes", "opt-in", "protected pods"}


TAINT = {"key": "trainy.konduktor.ai/faulty", "value": "true", "within": "1s"}
