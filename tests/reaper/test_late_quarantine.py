"""After an early stop the detector's quarantine is waited for, taken off, and kept only where the fault may be in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.task import AgentResult
from gameday.errors import AbortedError, StepFailedError, StopRunError
from gameday.history.events import FaultInjected, FaultUndone, Problem, RunEnded, WaitStarted
from gameday.ledger import undo
from gameday.ledger.entries import RestoreNode, TakeOutFault
from gameday.ledger.ledger import ledger_name, stored_ledgers
from gameday.plan.expectations import ExpectedCordon
from gameday.plan.load import LoadedPlan
from gameday.run.record import RunRecord
from gameday.run.run import Run
from gameday.values.nodes import Target
from gameday.values.results import Cleanliness, Step
from tests.support.opened import LONG, OpenedRun
from tests.support.runs import follow_as_target, quick_plan, with_plan
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import NAMESPACE, Kubelet, termination_message

pytestmark = pytest.mark.timeout(60)
TAINT = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
NEVER = AgentResult(role="inject", ok=False, cleanliness=Cleanliness.CLEAN, error="cannot write").model_dump_json()


class Stopped:
    """A run that stops with its fault in, on a node whose detector strikes as soon as the run waits for it."""

    def __init__(self, world: ScriptedWorld, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.opened = OpenedRun(world, folder)
        self.node = world.add_node()
        self.pod = f"gd-{self.opened.id}-inject"
        self.strikes: dict[str, Any] = {"taints": [TAINT]}
        self.monkeypatch = monkeypatch
        self.until_in_ledger: list[datetime | None] = []

    def _strike_when_waited_for(self, *, second_signal: bool) -> None:
        note = RunRecord.note

        def noted(record: RunRecord, event: Any) -> None:
            note(record, event)
            if isinstance(event, WaitStarted) and "quarantine" in event.what:
                self.until_in_ledger = [
                    entry.undo.until
                    for ledger in stored_ledgers(self.opened.run.kubernetes).ledgers
                    for entry in ledger.entries
                    if isinstance(entry.undo, RestoreNode)
                ]
                if second_signal:
                    record.abort._second_signal = True
                else:
                    self.world.core.patch_node(self.node, {"spec": self.strikes})

        self.monkeypatch.setattr(RunRecord, "note", noted)

    def play(
        self,
        stop: StopRunError,
        loaded: LoadedPlan | None = None,
        *,
        said: str | None = None,
        ready: bool = True,
        second_signal: bool = False,
    ) -> Stopped:
        """`said`: the injector's last word; `ready`: whether the run got the report that the fault is in."""
        self._strike_when_waited_for(second_signal=second_signal)

        def stops(run: Run) -> None:
            follow_as_target(run, self.node)
            run.record.begin_step(Step.INJECT)
            restore = RestoreNode(keys=run.quarantine_keys, unschedulable=False if run.plan.expect.cordoned else None)
            run.intend("quarantine", "let the detector", restore, self.node, LONG, defer_write=True)
            fault = TakeOutFault(pod=self.pod, gpu=0, fault={"type": "xid", "xid": 95})
            run.intend("inject", "inject", fault, self.node, LONG)
            if said is not None:
                self.world.add_pod(self.pod, run.id, node=self.node, role="inject")
                assert run.pods.wait(lambda: run.pods.seen(self.pod) is not None, 20)
            if ready:
                run.note(_injected(self.node, run.clock.now()))
            raise stop

        words = {"inject": said, "undo": termination_message(Cleanliness.CLEAN, "out", role="undo")}
        with Kubelet(self.world, self.opened.id, words):
            self.opened.play(stops, loaded or expecting())
        return self

    @property
    def waits(self) -> list[WaitStarted]:
        return [wait for wait in self.opened.history.of(WaitStarted) if "quarantine" in wait.what]

    @property
    def node_is_as_before(self) -> bool:
        return self.world.taints(self.node) == [] and not self.world.core.read_node(self.node).spec.unschedulable


def _injected(node: str, at: datetime) -> FaultInjected:
    return FaultInjected(
        intent="inject",
        target=Target(node=node, gpu=0),
        fault="xid",
        layer="kernel-log",
        written_at=at,
        evidence=(),
        does_not_reach="",
        seen_by=(),
    )


def expecting(**expect: Any) -> LoadedPlan:
    """The plan with a long bound."""
    loaded = quick_plan()
    slow = tuple(taint.model_copy(update={"within": LONG}) for taint in loaded.plan.expect.taints)
    expected = loaded.plan.expect.model_copy(update={"taints": slow, **expect})
    return with_plan(loaded, expect=expected)


@pytest.fixture
def stopped(world: ScriptedWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stopped:
    return Stopped(world, tmp_path / "reports", monkeypatch)


@pytest.mark.parametrize(
    "stop",
    [AbortedError("operator", "SIGINT received"), AbortedError("guard", "enough"), StepFailedError("no pod")],
    ids=["operator", "guard", "failed"],
)
def test_the_detectors_late_taint_is_waited_for_and_taken_off(stopped: Stopped, stop: StopRunError) -> None:
    stopped.play(stop, said=termination_message(Cleanliness.CLEAN, "out"))
    assert stopped.node_is_as_before
    assert stopped.opened.history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.CLEAN)]
    assert stopped.opened.is_as_if_it_never_was()
    (wait,) = stopped.waits
    assert stopped.node in wait.what
    assert " UTC" in wait.what
    assert wait.deadline_s == pytest.approx(LONG.total_seconds(), abs=0.5), "what the plan allows, from the fault on"
    (until,) = stopped.until_in_ledger
    assert until is not None
    assert f"{until:%H:%M:%S} UTC" in wait.what, "as a reaper reads it, should the run be killed meanwhile"


@pytest.mark.parametrize("has_message", [False, True], ids=["no word", "its word"])
def test_a_stop_while_the_injector_starts_has_the_same_wait(stopped: Stopped, has_message: bool) -> None:
    said = AgentResult(role="inject", ok=True, cleanliness=Cleanliness.CLEAN, written_at=stopped.world.clock.now())
    stopped.play(AbortedError("guard", "enough"), said=said.model_dump_json() if has_message else "", ready=False)
    assert len(stopped.waits) == 1
    assert stopped.node_is_as_before


@pytest.mark.parametrize("said", [None, NEVER], ids=["no pod", "an injector that did nothing"])
def test_where_no_fault_went_in_nothing_is_waited_for(stopped: Stopped, said: str | None) -> None:
    stopped.play(AbortedError("guard", "enough"), said=said, ready=False)
    assert stopped.waits == []
    assert stopped.opened.is_as_if_it_never_was()


def test_an_expected_cordon_is_waited_for_like_a_taint(stopped: Stopped) -> None:
    stopped.strikes = {"unschedulable": True}
    loaded = expecting(taints=(), cordoned=ExpectedCordon(within=LONG))
    stopped.play(AbortedError("guard", "enough"), loaded, said=termination_message(Cleanliness.CLEAN, "out"))
    assert len(stopped.waits) == 1
    assert stopped.node_is_as_before


def test_a_second_signal_ends_the_wait_and_the_possible_quarantine_is_reported(stopped: Stopped) -> None:
    stopped.play(
        AbortedError("operator", "SIGINT"), said=termination_message(Cleanliness.CLEAN, "out"), second_signal=True
    )
    assert any("a taint that comes later stays" in problem.what for problem in stopped.opened.history.of(Problem))
    assert stopped.opened.is_as_if_it_never_was()


def test_every_fault_is_out_before_a_quarantine_is_waited_for(stopped: Stopped) -> None:
    stopped.play(AbortedError("guard", "enough"), said=termination_message(Cleanliness.CLEAN, "out"))
    events = [record.event for record in stopped.opened.history.records]
    waited = events.index(stopped.waits[0])
    undone = [event.intent for event in events[:waited] if isinstance(event, FaultUndone)]
    assert set(undone) == {"mark", "inject"}


@pytest.mark.parametrize("fault", [Cleanliness.DIRTY, Cleanliness.UNKNOWN])
def test_a_node_whose_fault_is_not_provably_out_keeps_its_quarantine(
    stopped: Stopped, monkeypatch: pytest.MonkeyPatch, fault: Cleanliness
) -> None:
    monkeypatch.setattr("gameday.lifecycle.undo._RETRY_S", 0.0)
    settled: Callable[..., Any] = undo.undo_entry
    monkeypatch.setattr(
        "gameday.run.run_ledger.undo_entry",
        lambda kubernetes, entry, *rest, **named: (
            undo.UndoResult(fault, ("no answer",))
            if isinstance(entry.undo, TakeOutFault)
            else settled(kubernetes, entry, *rest, **named)
        ),
    )
    try:
        stopped.play(AbortedError("guard", "enough"), said=termination_message(Cleanliness.CLEAN, "out"))
        assert stopped.world.taints(stopped.node) == [tuple(TAINT.values())]
        ended = {one.intent: one.cleanliness for one in stopped.opened.history.of(FaultUndone)}
        assert ended == {"mark": Cleanliness.CLEAN, "inject": fault, "quarantine": fault}
        assert stopped.opened.history.of(RunEnded) == [RunEnded(cleanliness=fault)]
        assert stopped.world.ledgers() == [ledger_name(stopped.opened.id)]
    finally:
        stopped.world.core.delete_namespaced_config_map(ledger_name(stopped.opened.id), NAMESPACE)
