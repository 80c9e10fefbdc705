"""After an early stop the detector's quarantine is waited for, taken off, and kept only where the fault may be in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.task import AgentResult
from gameday.errors import AbortedError, KubernetesError, StepFailedError, StopRunError
from gameday.expect.cordoned import ExpectedCordon
from gameday.history.events import (
    Event,
    FaultInjected,
    FaultUndone,
    Problem,
    RecoveryDisturbed,
    RunEnded,
    TaintSeen,
    WaitStarted,
)
from gameday.ledger import undo
from gameday.ledger.entries import DeletePod, RestoreNode, TakeOutFault
from gameday.ledger.ledger import ledger_name, stored_ledgers
from gameday.plan.load import LoadedPlan
from gameday.reaper.reap import reap_under
from gameday.run.record import RunRecord
from gameday.run.run import Run
from gameday.run.run_ledger import RunLedger
from gameday.values.nodes import Target
from gameday.values.results import Cleanliness, Step
from tests.support.opened import LONG, OpenedRun
from tests.support.runs import quick_plan, with_plan
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
        self.strikes_early = False
        """Before the run stops."""
        self.injected_ago = timedelta()
        self.node_clock_ahead = timedelta()
        self.goes_in: Callable[[str, datetime], Event] = _injected
        self.when_waited_for: Callable[[RunRecord], object] = lambda _: None
        self.second_target = ""
        """Another node that the run follows."""
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
                self.when_waited_for(record)
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
            names = [self.node, *filter(None, [self.second_target])]
            run.nodes.follow_targets(tuple(seen for name in names if (seen := run.nodes.look_at(name))))
            run.record.begin_step(Step.INJECT)
            canary = f"gd-{run.id}-canary"
            run.intend("canary", "canary", DeletePod(pod=canary), self.node, LONG)
            self.world.add_pod(canary, run.id, node=self.node)
            assert run.pods.wait(lambda: run.pods.seen(canary) is not None, 20)
            restore = RestoreNode(keys=run.quarantine_keys, unschedulable=False if run.plan.expect.cordoned else None)
            run.intend("quarantine", "let the detector", restore, self.node, LONG, defer_write=True)
            fault = TakeOutFault(pod=self.pod, gpu=0, fault={"type": "xid", "xid": 95})
            run.intend("inject", "inject", fault, self.node, LONG)
            if said is not None:
                self.world.add_pod(self.pod, run.id, node=self.node, role="inject")
                assert run.pods.wait(lambda: run.pods.seen(self.pod) is not None, 20)
            if ready:
                run.note(self.goes_in(self.node, run.clock.now() + self.node_clock_ahead))
                self.world.clock.sleep(self.injected_ago.total_seconds())
            if self.strikes_early:
                self.world.core.patch_node(self.node, {"spec": self.strikes})
                assert run.nodes.wait_until(self.node, lambda: bool(run.history().of(TaintSeen)), 20)
            raise stop

        words = {"inject": said, "undo": termination_message(Cleanliness.CLEAN, "out", role="undo")}
        with Kubelet(self.world, self.opened.id, words):
            self.opened.play(stops, loaded or expecting())
        return self

    @property
    def waits(self) -> list[WaitStarted]:
        return [wait for wait in self.opened.history.of(WaitStarted) if "quarantine" in wait.what]

    @property
    def waited_s(self) -> float:
        """From the beginning of the wait until the node is given back."""
        records = self.opened.history.records
        (began,) = [one.at for one in records if one.event in self.waits]
        (over,) = [one.at for one in records if isinstance(one.event, FaultUndone) and one.event.intent == "quarantine"]
        return (over - began).total_seconds()

    @property
    def says_that_a_taint_may_stay(self) -> bool:
        return any("a taint that comes later stays" in problem.what for problem in self.opened.history.of(Problem))

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


@pytest.mark.parametrize("ahead", [timedelta(hours=1), -timedelta(hours=1)], ids=["ahead", "behind"])
def test_a_nodes_wrong_clock_makes_the_wait_neither_longer_nor_shorter(stopped: Stopped, ahead: timedelta) -> None:
    stopped.node_clock_ahead = ahead
    stopped.play(AbortedError("operator", "SIGINT"), said=termination_message(Cleanliness.CLEAN, "out"))
    (wait,) = stopped.waits
    assert wait.deadline_s == pytest.approx(LONG.total_seconds(), abs=0.5)
    assert stopped.node_is_as_before


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


def test_a_detector_whose_time_is_over_is_not_waited_for(stopped: Stopped) -> None:
    stopped.injected_ago = LONG
    stopped.play(AbortedError("guard", "enough"), said=termination_message(Cleanliness.CLEAN, "out"))
    assert stopped.waits == []
    assert stopped.opened.is_as_if_it_never_was()


def test_a_quarantine_that_is_there_already_is_not_waited_for(stopped: Stopped) -> None:
    stopped.strikes_early = True
    stopped.play(AbortedError("guard", "enough"), said=termination_message(Cleanliness.CLEAN, "out"))
    assert stopped.waits == []
    assert stopped.node_is_as_before


def test_an_expected_cordon_is_waited_for_like_a_taint(stopped: Stopped) -> None:
    stopped.strikes = {"unschedulable": True}
    loaded = expecting(taints=(), cordoned=ExpectedCordon(within=LONG))
    stopped.play(AbortedError("guard", "enough"), loaded, said=termination_message(Cleanliness.CLEAN, "out"))
    assert len(stopped.waits) == 1
    assert stopped.node_is_as_before


CORDON = ExpectedCordon(within=LONG)
FOREIGN = {"key": "example.com/busy", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("expect", "strikes", "is_all"),
    [
        ({}, {"taints": [TAINT]}, True),
        ({}, {"taints": [TAINT, FOREIGN], "unschedulable": True}, True),
        ({}, {"taints": [FOREIGN]}, False),
        ({"taints": (), "cordoned": CORDON}, {"unschedulable": True}, True),
        ({"taints": (), "cordoned": CORDON}, {"taints": [TAINT]}, False),
        ({"cordoned": CORDON}, {"taints": [TAINT], "unschedulable": True}, True),
        ({"cordoned": CORDON}, {"taints": [TAINT]}, False),
        ({"cordoned": CORDON}, {"unschedulable": True}, False),
        ({"taints": (), "stays_schedulable_for": LONG}, {"taints": [TAINT]}, True),
        ({"taints": (), "stays_schedulable_for": LONG}, {"taints": [FOREIGN]}, False),
    ],
)
def test_the_wait_ends_with_all_that_the_plan_expects_on_this_node_and_not_before(
    stopped: Stopped, expect: dict[str, Any], strikes: dict[str, Any], is_all: bool
) -> None:
    stopped.second_target = stopped.world.add_node()
    stopped.strikes = strikes
    whole = {"spec": {"taints": [TAINT], "unschedulable": True}}
    stopped.when_waited_for = lambda _: stopped.world.core.patch_node(stopped.second_target, whole)
    stopped.play(AbortedError("guard", "enough"), expecting(**expect), said=termination_message(Cleanliness.CLEAN))
    assert stopped.waited_s == pytest.approx(0 if is_all else LONG.total_seconds(), abs=1)
    assert not stopped.says_that_a_taint_may_stay


def test_a_second_signal_is_heeded_while_nothing_happens_on_the_node(stopped: Stopped) -> None:
    stopped.strikes = {}
    stopped.when_waited_for = lambda record: stopped.world.clock.after(
        10, lambda: setattr(record.abort, "_second_signal", True)
    )
    stopped.play(AbortedError("operator", "SIGINT"), said=termination_message(Cleanliness.CLEAN, "out"))
    assert 10 <= stopped.waited_s < 11
    assert stopped.says_that_a_taint_may_stay


def test_a_second_signal_after_the_quarantine_leaves_nothing_to_come(stopped: Stopped) -> None:
    def strikes(record: RunRecord) -> None:
        stopped.world.core.patch_node(stopped.node, {"spec": stopped.strikes})
        stopped.world.clock.after(0.2, lambda: setattr(record.abort, "_second_signal", True))

    stopped.when_waited_for = strikes
    stopped.play(AbortedError("operator", "SIGINT"), said=termination_message(Cleanliness.CLEAN, "out"))
    assert not stopped.says_that_a_taint_may_stay
    assert stopped.node_is_as_before


def test_a_fault_that_went_in_while_the_node_was_repaired_starts_the_detectors_time(stopped: Stopped) -> None:
    def disturbs(node: str, at: datetime) -> RecoveryDisturbed:
        target = Target(node=node, gpu=0)
        return RecoveryDisturbed(
            intent="inject", target=target, fault="xid", layer="kernel-log", written_at=at, evidence=()
        )

    stopped.goes_in = disturbs
    stopped.injected_ago = LONG / 2
    stopped.play(AbortedError("guard", "enough"), said=termination_message(Cleanliness.CLEAN, "out"))
    (wait,) = stopped.waits
    assert wait.deadline_s == pytest.approx(LONG.total_seconds() / 2, abs=0.5)


def test_a_wait_that_the_ledger_cannot_record_is_waited_all_the_same(
    stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise KubernetesError("https://server", "write quarantine: 500 etcd is away")

    monkeypatch.setattr(RunLedger, "update_undo", refused)
    stopped.play(AbortedError("guard", "enough"), said=termination_message(Cleanliness.CLEAN, "out"))
    (problem,) = [one.what for one in stopped.opened.history.of(Problem) if "etcd is away" in one.what]
    assert stopped.node in problem
    assert len(stopped.waits) == 1
    assert stopped.node_is_as_before


def test_a_run_that_is_taken_for_dead_in_the_wait_does_not_undo_what_its_reaper_did(stopped: Stopped) -> None:
    """The quarantine that is there afterwards is another run's."""

    def sleeps(_: RunRecord) -> None:
        with stopped.world.connected("gameday-reaper") as reaper:
            stopped.world.taint(stopped.node, TAINT)
            assert reap_under(reaper, "reaper-1").is_clean
        stopped.world.clock.freeze(31)

    stopped.when_waited_for = sleeps
    stopped.play(AbortedError("guard", "enough"), said=termination_message(Cleanliness.CLEAN, "out"))
    ended = {one.intent: one.by for one in stopped.opened.history.of(FaultUndone)}
    assert ended["quarantine"] == "reaper"
    assert stopped.world.taints(stopped.node) == [tuple(TAINT.values())]


def test_a_second_signal_ends_the_wait_and_the_possible_quarantine_is_reported(stopped: Stopped) -> None:
    stopped.play(
        AbortedError("operator", "SIGINT"), said=termination_message(Cleanliness.CLEAN, "out"), second_signal=True
    )
    assert stopped.says_that_a_taint_may_stay
    assert stopped.opened.is_as_if_it_never_was()


def test_every_fault_is_out_before_a_quarantine_is_waited_for(stopped: Stopped) -> None:
    stopped.play(AbortedError("guard", "enough"), said=termination_message(Cleanliness.CLEAN, "out"))
    events = [record.event for record in stopped.opened.history.records]
    waited = events.index(stopped.waits[0])
    undone = [event.intent for event in events[:waited] if isinstance(event, FaultUndone)]
    assert set(undone) == {"mark", "canary", "inject"}


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
        assert ended == {"mark": Cleanliness.CLEAN, "canary": Cleanliness.CLEAN, "inject": fault, "quarantine": fault}
        assert stopped.opened.history.of(RunEnded) == [RunEnded(cleanliness=fault)]
        assert stopped.world.ledgers() == [ledger_name(stopped.opened.id)]
    finally:
        stopped.world.core.delete_namespaced_config_map(ledger_name(stopped.opened.id), NAMESPACE)
