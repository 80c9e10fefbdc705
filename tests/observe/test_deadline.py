"""What came within its bound and was seen after it is in time for the step, as it is for the verdict."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.checks.signals import they_come
from gameday.checks.verdict import Status
from gameday.cluster.prometheus import ActiveAlert, RuleGroup, Sample, Series
from gameday.errors import AdapterError
from gameday.expect.alerts import judge as alert_checks
from gameday.expect.events import Events
from gameday.expect.taints import Taints
from gameday.faults.base import Layer
from gameday.history.events import AlertSeen, FaultInjected, KubernetesEventSeen, TaintSeen, TargetsChosen
from gameday.history.frames import Frames
from gameday.observe.injected_fault import InjectedFault
from gameday.observe.signals import await_signals
from gameday.run.record import RunRecord
from gameday.run.run import Run
from gameday.run.steps import StepResult, step
from gameday.tasks import await_alert as alert_step
from gameday.values.nodes import Taint
from gameday.values.results import Step
from tests.guard.observations import profile
from tests.support.runs import chosen_target, fake_run, loaded_plan

NODE, ALERT, BOUND = "gpu-1", "GPUXidCritical", timedelta(seconds=10)
LABELS = {"alertname": ALERT, "node": NODE}
TAINT = Taint(key="trainy.konduktor.ai/faulty", value="true", effect="NoSchedule")
PLAN = {
    "apiVersion": "gameday/v1",
    "name": "quick",
    "title": "A quick game-day",
    "hypothesis": "The node is quarantined.",
    "fault": {"type": "xid", "xid": 95},
    "expect": {
        "alerts": [{"name": ALERT, "within": "10s"}],
        "taints": [{"key": TAINT.key, "value": TAINT.value, "within": "10s"}],
        "events": [{"reason": "XidCritical", "within": "10s"}],
    },
}


class Prometheus:
    """`looks` are the answers to /api/v1/alerts, the last of them for ever; `fired` is what it stored as firing."""

    def __init__(self, *looks: bool | None, fired: datetime | None) -> None:
        self.looks, self.fired = list(looks), fired

    def alerts(self) -> tuple[ActiveAlert, ...]:
        now = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if now is None:
            raise AdapterError("http://127.0.0.1:9/api/v1/alerts", "connection refused")
        one = ActiveAlert(labels=LABELS, state="firing", activeAt=self.fired or datetime.now(UTC), value="1")
        return (one,) if now else ()

    def rule_groups(self) -> tuple[RuleGroup, ...]:
        return ()

    def query(self, promql: str, at: datetime) -> list[Sample]:
        return []

    def stored_samples(self, selector: str, window: timedelta, end: datetime) -> list[Series]:
        points = ((self.fired, 1.0),) if self.fired else ()
        return [Series("ALERTS", LABELS | {"alertstate": "firing"}, points)]


@pytest.fixture
def run_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    """Make runs whose fault went in so long ago; `fault_in` returns that fault."""
    records: list[RunRecord] = []
    monkeypatch.setattr(alert_step, "note_notified", lambda *_: True)

    def make(ago: timedelta, *looks: bool | None, fired_after: float | None = None) -> Run:
        records.append(RunRecord("r", tmp_path, loaded_plan(PLAN)))
        written_at = datetime.now(UTC) - ago
        fired = written_at + timedelta(seconds=fired_after) if fired_after else None
        servers: Any = SimpleNamespace(prometheus=Prometheus(*(looks or (False,)), fired=fired))
        run = fake_run(records[-1], profile(), servers=servers, ledger=SimpleNamespace(check_lease=lambda: None))
        target = chosen_target(NODE).target
        run.note(TargetsChosen(targets=(target,), candidates=1, rule="", seed=0))
        run.note(
            FaultInjected(
                intent="fault",
                target=target,
                fault="xid",
                layer=Layer.KERNEL_LOG,
                written_at=written_at,
                evidence=(),
            )
        )
        return run

    yield make
    for record in records:
        record.journal.close()


def fault_in(run: Run) -> InjectedFault:
    (noted,) = run.history().of(FaultInjected)
    tail: Any = None
    return InjectedFault(chosen_target(NODE), noted.written_at, noted.evidence, (), tail)


def alert_of(run: Run) -> tuple[StepResult, Status]:
    """What the step says, and what the verdict."""
    with step(run, Step.AWAIT_ALERT) as result:
        alert_step._await_alert(run, result, run.plan.expect.alerts[0], fault_in(run), [NODE])
    verdicts = alert_checks.check(run.plan, run.history(), Frames())
    return result, next(one.status for one in verdicts if one.check == "alert-fires")


@pytest.mark.parametrize(
    ("looks", "after", "outcome", "status"),
    [
        ((True,), 9.8, "done", Status.HELD),
        ((False, True), 9.8, "unknown", Status.UNKNOWN),
        ((False, True), 10.5, "broken", Status.BROKEN),
        ((True,), 10.5, "broken", Status.BROKEN),
        ((False,), 9.8, "done", Status.HELD),
        ((False,), None, "broken", Status.BROKEN),
        ((None,), None, "unknown", Status.UNKNOWN),
    ],
    ids=["seen-late", "refuted-by-a-look", "came-late", "found-late", "came-and-went", "never", "unreachable"],
)
def test_an_alert_is_judged_by_when_it_fired(
    run_of: Callable[..., Run], looks: tuple[bool | None, ...], after: float | None, outcome: str, status: Status
) -> None:
    run = run_of(timedelta(seconds=30), *looks, fired_after=after)
    result, verdict = alert_of(run)
    assert (result.outcome, verdict) == (outcome, status)


def test_an_alert_that_was_only_pending_when_we_looked_and_then_came_and_went_is_found(
    run_of: Callable[..., Run],
) -> None:
    run = run_of(timedelta(seconds=30), False, fired_after=9.8)
    now = datetime.now(UTC)
    run.note(AlertSeen(alert=ALERT, state="pending", labels=LABELS, node=NODE, expected=True, at=now))
    assert alert_of(run)[0].outcome == "done"


def test_a_taint_that_came_and_went_while_the_step_was_busy_was_there(run_of: Callable[..., Run]) -> None:
    run = run_of(timedelta(seconds=30))
    came = datetime.now(UTC) - timedelta(seconds=25)
    run.note(TaintSeen(node=NODE, taint=TAINT, present=True, manager="detector", at=came))
    run.note(TaintSeen(node=NODE, taint=TAINT, present=False, manager="detector", at=came + timedelta(seconds=1)))
    with step(run, Step.VERIFY_TAINT) as result:
        assert await_signals(run, result, fault_in(run), run.plan.expect.taints)
    assert result.outcome == "done"
    assert they_come(Taints, run.plan, run.history(), Frames())[0].status is Status.HELD


def test_a_taint_that_came_too_late_is_there_and_breaks_the_step(run_of: Callable[..., Run]) -> None:
    run = run_of(timedelta(seconds=30))
    came = datetime.now(UTC) - timedelta(seconds=15)
    run.note(TaintSeen(node=NODE, taint=TAINT, present=True, manager="detector", at=came))
    with step(run, Step.VERIFY_TAINT) as result:
        assert await_signals(run, result, fault_in(run), run.plan.expect.taints)
    assert result.outcome == "broken"
    assert re.search(r"\b5\.\d s too late", result.reasons[0])


def test_an_event_that_was_written_in_time_may_be_noted_a_moment_later(run_of: Callable[..., Run]) -> None:
    run = run_of(BOUND)
    late_event = KubernetesEventSeen(
        node=NODE, reason="XidCritical", type="Warning", source="npd", message="", count=1,
        at=datetime.now(UTC) - timedelta(seconds=1),
    )  # fmt: skip
    later = threading.Timer(0.3, run.note, (late_event,))
    later.start()
    with step(run, Step.VERIFY_TAINT) as result:
        await_signals(run, result, fault_in(run), run.plan.expect.events)
    later.join()
    assert result.outcome == "done"
    assert they_come(Events, run.plan, run.history(), Frames())[0].status is Status.HELD
