"""What is measured before, during and after the fault: without a baseline nothing is judged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest

from gameday.agent.task import AllReduceNote
from gameday.errors import StepFailedError
from gameday.expect.canary import ExpectedAllReduce
from gameday.history.events import CanaryMeasured, QaChecked
from gameday.plan.models import Plan
from gameday.run.run import Run
from gameday.run.steps import StepResult, step
from gameday.tasks.moments import canary as tasks
from gameday.values.results import Step
from tests.support.runs import chosen_target

NewRun = Callable[..., Run]
TARGET = chosen_target("gpu-node-1")


def reducing(plan: Plan) -> Plan:
    expected = ExpectedAllReduce.model_validate({"interface": "ib0", "falls_below": "25%", "tolerance": "50%"})
    return plan.model_copy(update={"expect": plan.expect.model_copy(update={"all_reduce": expected})})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[AllReduceNote]:
    """The notes that the next measurements give, in order."""
    notes: list[AllReduceNote] = []
    monkeypatch.setattr(tasks, "choose_peers", lambda *_: ("gpu-node-2",))
    monkeypatch.setattr(tasks, "measure_all_reduce", lambda *_: notes.pop(0))
    return notes


def during(run: Run) -> StepResult:
    with step(run, Step.VERIFY_TAINT, timedelta()) as result:
        tasks.during_fault(run, result, SimpleNamespace(target=TARGET))
    return result


def test_a_zero_before_the_fault_is_no_baseline(new_run: NewRun, measured: list[AllReduceNote]) -> None:
    run = new_run(change=reducing)
    measured.append(AllReduceNote(value=0.0, detail="no ring: ib0 is down"))
    tasks.before_fault_on(run, TARGET)
    (seen,) = run.history().of(CanaryMeasured)
    assert (seen.value, seen.ok, seen.detail) == (None, None, "0 before the fault: no ring: ib0 is down")
    during(run)  # measures nothing
    assert tasks.qa_checks(run, TARGET) == []
    assert len(run.history().of(CanaryMeasured)) == 1


def test_peers_and_bytes_stay_those_of_the_baseline(new_run: NewRun, measured: list[AllReduceNote]) -> None:
    run = new_run(change=reducing)
    measured += [
        AllReduceNote(value=4.0, detail="2 nodes", latency_ms=0.3, bytes=1 << 20, ranks=2),
        AllReduceNote(value=0.5, detail="2 nodes", latency_ms=50.0, bytes=1 << 20, ranks=2),
        AllReduceNote(value=1.9, detail="2 nodes", latency_ms=0.3, bytes=1 << 20, ranks=2),
    ]
    tasks.before_fault_on(run, TARGET)
    during(run)
    (checked,) = tasks.qa_checks(run, TARGET)
    seen = run.history().of(CanaryMeasured)
    assert [(one.phase, one.ok, one.peers, one.bytes) for one in seen] == [
        ("before", True, ("gpu-node-2",), 1 << 20),
        ("during", True, ("gpu-node-2",), 1 << 20),
        ("after", False, ("gpu-node-2",), 1 << 20),
    ]
    assert (checked.check, checked.ok, checked.bound) == ("all-reduce", False, ">= 2")
    assert run.history().of(QaChecked) == [checked]


def test_a_peer_that_was_replaced_is_named(
    new_run: NewRun, measured: list[AllReduceNote], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(change=reducing)
    measured += [
        AllReduceNote(value=4.0, detail="2 nodes", ranks=2),
        AllReduceNote(value=0.5, detail="2 nodes", ranks=2),
    ]
    tasks.before_fault_on(run, TARGET)
    monkeypatch.setattr(tasks, "choose_peers", lambda *_: ("gpu-node-3",))
    during(run)
    seen = run.history().of(CanaryMeasured)[-1]
    assert (seen.peers, seen.detail) == (("gpu-node-3",), "2 nodes; with gpu-node-3, before with gpu-node-2")


def test_too_few_peers_are_unknown_with_the_reason(new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_fit(*_: object) -> tuple[str, ...]:
        raise StepFailedError("0 of 1 peers found for an all-reduce; gpu-node-2: is cordoned")

    monkeypatch.setattr(tasks, "choose_peers", none_fit)
    run = new_run(change=reducing)
    tasks.before_fault_on(run, TARGET)
    (seen,) = run.history().of(CanaryMeasured)
    assert (seen.value, "gpu-node-2: is cordoned" in seen.detail) == (None, True)
