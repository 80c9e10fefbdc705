"""Nothing comes between a run and its undo; and a run that was taken for dead undoes nothing twice."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.nodes import snapshot
from gameday.cluster.virtual_cluster import ENDED
from gameday.errors import AbortedError, KubernetesError, StepFailedError
from gameday.history.events import (
    Aborted,
    FaultUndone,
    NodeSeen,
    Problem,
    PrometheusFellBehind,
    RunEnded,
    StepEnded,
    TargetsChosen,
)
from gameday.ledger.entries import DeletePod, Header, RestoreNode, TakeOutFault, UndoResult
from gameday.ledger.lease import CLUSTER_LEASE
from gameday.ledger.ledger import Ledger, ledger_name
from gameday.lifecycle import closing
from gameday.reaper.reap import reap, reap_under
from gameday.run import run_ledger
from gameday.run.abort import Abort
from gameday.run.record import RunRecord
from gameday.run.run import Run
from gameday.run.run_ledger import RunLedger
from gameday.run.steps import step
from gameday.values.results import Cleanliness, Step, StepOutcome
from gameday_rehearsal.folder import HeldFolder
from tests.support.opened import LONG, OpenedRun
from tests.support.runs import follow_as_target
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import NAMESPACE, unique

LATER = datetime(2030, 1, 2, tzinfo=UTC)
pytestmark = pytest.mark.timeout(60)
KEY = "trainy.konduktor.ai/faulty"


@pytest.fixture(autouse=True)
def hangup_as_in_a_terminal() -> Iterator[None]:
    """Under nohup SIGHUP is ignored, by these tests as well."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def opened(world: ScriptedWorld, tmp_path: Path) -> OpenedRun:
    return OpenedRun(world, tmp_path / "reports")


# --- a virtual cluster that ends ---


@pytest.mark.parametrize("ends", ["under a step", "in the undo"])
def test_what_a_virtual_cluster_took_with_it_is_not_undone(
    opened: OpenedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    folder = tmp_path / "cluster"
    profile = opened.world.profile_of("gameday-runner").model_copy(update={"rehearsal": folder})
    monkeypatch.setattr(opened.world, "profile_of", lambda _: profile)
    held = HeldFolder(folder)

    def end(*_: object) -> UndoResult:
        (folder / ENDED).write_text("nodes died")
        return UndoResult(Cleanliness.UNKNOWN, ("refused",))

    def aborts(run: Run) -> None:
        run.record.begin_step(Step.INJECT)
        run.intend("pod", "a pod on a node", DeletePod(pod=f"gd-{run.id}-pod"), "n1", LONG)
        if ends == "under a step":
            end()
            run.record.abort.sleep(30)
        monkeypatch.setattr("gameday.run.run_ledger.undo_entry", lambda *_, **__: end())
        raise AbortedError("guard", "enough")

    opened.play(aborts)
    held.release()
    (aborted,) = opened.history.of(Aborted)
    assert ("nodes died" in aborted.why) is (ends == "under a step")
    gone = [one for one in opened.history.of(FaultUndone) if one.cleanliness is Cleanliness.CLEAN]
    assert {(one.intent, one.node) for one in gone} == {("mark", None), ("pod", "n1")}
    assert {one.evidence for one in gone} == {("the virtual cluster has ended, and everything in it with it",)}
    assert opened.history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.CLEAN)]
    assert opened.history.of(PrometheusFellBehind), "alerts may have fired that nobody saw"
    assert opened.world.pods(opened.id), "nobody asks a cluster that has ended"


# --- signals ---


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_between_the_run_and_its_undo_does_not_skip_the_undo(
    opened: OpenedRun, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals
) -> None:
    note = RunRecord.note

    def interrupted(record: RunRecord, event: Any) -> None:
        note(record, event)
        if isinstance(event, Aborted):
            signal.raise_signal(sent)

    monkeypatch.setattr(RunRecord, "note", interrupted)

    def stops(run: Run) -> None:
        raise AbortedError("guard", "enough")

    opened.play(stops)
    assert opened.is_as_if_it_never_was()
    assert opened.run.record.abort.second_signal is False
    assert opened.history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.CLEAN)]


def test_a_terminal_that_goes_away_asks_for_an_abort() -> None:
    abort = Abort()
    with abort.on_signals():
        signal.raise_signal(signal.SIGHUP)
    with pytest.raises(AbortedError, match="its terminal, or the connection to it, was closed"):
        abort.check()


def test_nohup_stays_nohup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    abort = Abort()
    with abort.on_signals():
        signal.raise_signal(signal.SIGHUP)
    abort.check()


@pytest.mark.parametrize("by", ["operator", "guard"])
def test_only_after_a_signal_a_second_agent_is_waited_for_less_long(
    opened: OpenedRun, monkeypatch: pytest.MonkeyPatch, by: Literal["operator", "guard"]
) -> None:
    after_signal: list[bool] = []

    def undone(*_: object, **how: Any) -> UndoResult:
        after_signal.append(how["after_signal"])
        return UndoResult(Cleanliness.CLEAN, ())

    monkeypatch.setattr("gameday.run.run_ledger.undo_entry", undone)
    opened.play(lambda run: run.record.abort.request(by, "enough"))
    assert after_signal == [by == "operator"]


# --- Prefect's own exceptions ---


@pytest.mark.parametrize(
    ("owner", "where"),
    [(RunLedger, "undo"), (RunLedger, "settle"), (closing, "note_nodes_after"), (Ledger, "all_clean")],
    ids=["undo", "settle", "last look", "closing of the ledger"],
)
def test_what_is_thrown_into_the_undo_does_not_end_it(
    opened: OpenedRun, monkeypatch: pytest.MonkeyPatch, owner: Any, where: str
) -> None:
    """Prefect raises CancelledError in the flow's thread, once and anywhere, when a concurrency slot is not renewed."""
    method, thrown = getattr(owner, where), list[str]()

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if not thrown:
            thrown.append(where)
            raise asyncio.CancelledError
        return method(*arguments, **options)

    def stops(run: Run) -> None:
        target = follow_as_target(run, opened.world.add_node())
        run.note(TargetsChosen(targets=(target.target,), candidates=1, rule="", seed=0))
        monkeypatch.setattr(owner, where, interrupted)

    with pytest.raises(asyncio.CancelledError):
        opened.play(stops)
    assert thrown == [where]
    assert opened.is_as_if_it_never_was()
    assert opened.history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.CLEAN)]
    assert len({one.step for one in opened.history.of(StepEnded)}) == len(opened.history.of(StepEnded))


def test_a_node_that_only_the_closing_gives_back_is_looked_at_again(world: ScriptedWorld, opened: OpenedRun) -> None:
    """QA kept it out of service, because the injector did not answer; the next attempt at its undo was answered."""
    sleeper = Sleeper(world, opened)

    def kept_out(run: Run) -> None:
        target = follow_as_target(run, sleeper.node)
        run.note(TargetsChosen(targets=(target.target,), candidates=1, rule="", seed=0))
        undo = RestoreNode(keys=(KEY,), unschedulable=False)
        run.intend("quarantine", "let the detector quarantine the node", undo, sleeper.node, LONG)
        sleeper.taint()
        run.note(NodeSeen(phase="after", snapshot=snapshot(opened.world.core.read_node(sleeper.node))))

    opened.play(kept_out)
    seen = [one.snapshot.taints for one in opened.history.of(NodeSeen) if one.phase == "after"]
    assert [len(taints) for taints in seen] == [1, 0]


def test_a_quarantine_that_a_detector_puts_back_is_dirty_and_the_reaper_says_what_to_do(
    world: ScriptedWorld, opened: OpenedRun, reaper: Kubernetes
) -> None:
    sleeper = Sleeper(world, opened)

    def tainted_again(run: Run) -> None:
        target = follow_as_target(run, sleeper.node)
        run.note(TargetsChosen(targets=(target.target,), candidates=1, rule="", seed=0))
        undo = RestoreNode(keys=(KEY,), unschedulable=False)
        entry = run.intend("quarantine", "let the detector quarantine the node", undo, sleeper.node, LONG)
        sleeper.taint()
        assert run.undo(entry) is Cleanliness.CLEAN
        sleeper.taint()

    opened.play(tainted_again)
    command = f"kubectl taint node {sleeper.node} {KEY}:NoSchedule- && gameday reap"
    assert opened.history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.DIRTY)]
    assert len([one for one in opened.history.of(Problem) if command in one.hint]) == 1
    for _ in range(2):
        (left,) = reap(reaper).reaped
        assert left.cleanliness is Cleanliness.DIRTY
        assert command in left.describe()
    opened.world.core.patch_node(sleeper.node, {"spec": {"taints": None}})
    assert reap(reaper).is_clean
    assert opened.is_as_if_it_never_was()


@pytest.mark.parametrize(("says_so", "left"), [(True, []), (False, [KEY])])
def test_a_flow_without_qa_gives_a_quarantined_node_back_only_if_it_asks_for_that(
    world: ScriptedWorld, opened: OpenedRun, says_so: bool, left: list[str]
) -> None:
    sleeper = Sleeper(world, opened)

    def quarantined(run: Run) -> None:
        follow_as_target(run, sleeper.node)
        undo = RestoreNode(keys=(KEY,), unschedulable=False)
        run.intend("quarantine", "let the detector quarantine the node", undo, sleeper.node, LONG)
        sleeper.taint()
        assert run.wait("the taint", LONG, lambda: is_tainted(run))

    def is_tainted(run: Run) -> bool | None:
        now = run.nodes.now(sleeper.node)
        return True if now and now.taints else None

    opened.play(quarantined, return_without_qa=says_so)
    assert [taint.key for taint in snapshot(opened.world.core.read_node(sleeper.node)).taints] == left
    state = Cleanliness.DIRTY if left else Cleanliness.CLEAN
    assert opened.history.of(RunEnded) == [RunEnded(cleanliness=state)]
    ended = {one.step: one for one in opened.history.of(StepEnded)}
    assert ended[Step.QA_NODE].outcome is StepOutcome.NOT_ASKED
    assert "leaves out" in ended[Step.QA_NODE].why


def test_a_node_goes_back_after_qa_whatever_other_step_the_flow_leaves_out(
    world: ScriptedWorld, opened: OpenedRun
) -> None:
    sleeper = Sleeper(world, opened)

    def with_qa(run: Run) -> None:
        follow_as_target(run, sleeper.node)
        undo = RestoreNode(keys=(KEY,), unschedulable=False)
        run.intend("quarantine", "let the detector quarantine the node", undo, sleeper.node, LONG)
        sleeper.taint()
        with step(run, Step.QA_NODE):
            pass

    opened.play(with_qa, return_without_qa=False)
    assert world.taints(sleeper.node) == []
    assert opened.history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.CLEAN)]


def test_an_exception_thrown_into_a_run_is_recorded_and_the_run_undone(opened: OpenedRun) -> None:
    def thrown(run: Run) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        opened.play(thrown)
    assert [one.why for one in opened.history.of(Aborted)] == ["broken off from outside, by CancelledError"]
    assert opened.is_as_if_it_never_was()


@pytest.mark.parametrize(
    ("failing", "fault_is_out", "attempts"),
    [(DeletePod, True, 3), (RestoreNode, True, 3), (RestoreNode, False, 1)],
    ids=["a pod", "a node", "a node with its fault in"],
)
def test_an_undo_is_tried_again_unless_the_node_has_to_stay_out_of_service(
    world: ScriptedWorld,
    opened: OpenedRun,
    monkeypatch: pytest.MonkeyPatch,
    failing: type[DeletePod] | type[RestoreNode],
    fault_is_out: bool,
    attempts: int,
) -> None:
    node, real, tries = world.add_node(), run_ledger.undo_entry, list[str]()

    def fails_twice(kubernetes: Kubernetes, entry: Any, *about: Any, **more: Any) -> UndoResult:
        if isinstance(entry.undo, TakeOutFault):
            return UndoResult(Cleanliness.CLEAN if fault_is_out else Cleanliness.UNKNOWN, ("as the agent said",))
        if isinstance(entry.undo, failing):
            tries.append(entry.id)
            if len(tries) < attempts:
                return UndoResult(Cleanliness.UNKNOWN, ("no answer",))
        return real(kubernetes, entry, *about, **more)

    monkeypatch.setattr(run_ledger, "undo_entry", fails_twice)

    def quarantined(run: Run) -> None:
        follow_as_target(run, node)
        run.intend("quarantine", "quarantine", RestoreNode(keys=(KEY,), unschedulable=None), node, LONG)
        fault = TakeOutFault(pod=f"gd-{run.id}-inject", gpu=0, fault={"type": "xid", "xid": 95})
        run.intend("inject", "inject", fault, node, LONG)
        world.taint(node, {"key": KEY, "value": "true", "effect": "NoSchedule"})

    opened.play(quarantined)
    assert len(tries) == attempts
    assert (world.taints(node) == []) is fault_is_out


def test_an_undo_that_is_broken_is_tried_once_named_and_left_to_the_reaper(
    opened: OpenedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = list[str]()

    def broken(_: Kubernetes, entry: Any, *__: Any, **___: Any) -> UndoResult:
        tries.append(entry.id)
        raise RuntimeError("not foreseen")

    monkeypatch.setattr(run_ledger, "undo_entry", broken)
    opened.play(lambda _: None)
    assert tries == ["mark"]
    (problem,) = [one for one in opened.history.of(Problem) if "not foreseen" in one.what]
    assert "mark" in problem.what
    assert "gameday reap" in problem.hint
    assert opened.history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.UNKNOWN)]


# --- what a dead run left in for good ---


def test_a_node_that_a_dead_run_left_dirty_is_known_to_the_next_run(world: ScriptedWorld, opened: OpenedRun) -> None:
    dead, node = unique("dead"), world.add_node()
    with world.connected("gameday-runner") as runner:
        ledger = Ledger(runner, Header(run_id=dead, plan="p", started=LATER, operator="ada", host="here"))
        undo = TakeOutFault(pod=f"gd-{dead}-inject", gpu=0, fault={"type": "power_cap", "watts": 300})
        entry = ledger.intend(id="inject", act="create agent pod (inject)", node=node, undo=undo, expires=LATER)
        ledger.settle(entry, Cleanliness.DIRTY, "flow", ["the power limit is still 300 W"])
    try:
        opened.play(lambda run: None)
    finally:
        world.core.delete_namespaced_config_map(ledger_name(dead), NAMESPACE)
    assert opened.run.excluded_nodes.keys() == {node}
    assert dead in opened.run.excluded_nodes[node]


# --- taken for dead ---


class Sleeper:
    """A run that sleeps past its lease with a quarantined node; `after` is what the world does meanwhile."""

    def __init__(self, world: ScriptedWorld, opened: OpenedRun) -> None:
        self.world = world
        self.opened = opened
        self.node = world.add_node()

    def sleep(self, run: Run, meanwhile: Callable[[], object]) -> None:
        undo = RestoreNode(keys=(KEY,), unschedulable=False)
        run.intend("quarantine", "let the detector quarantine the node", undo, self.node, LONG)
        self.taint()
        meanwhile()
        self.world.clock.freeze(31)

    def taint(self) -> None:
        taint = {"key": KEY, "value": "true", "effect": "NoSchedule"}
        self.world.core.patch_node(self.node, {"spec": {"taints": [taint]}})

    def reaped(self) -> None:
        with self.world.connected("gameday-reaper") as reaper:
            assert reap_under(reaper, "reaper-1").is_clean

    def ended(self) -> list[tuple[str, str]]:
        return [(str(one.by), one.intent) for one in self.opened.history.of(FaultUndone)]


@pytest.fixture
def sleeper(world: ScriptedWorld, opened: OpenedRun) -> Sleeper:
    return Sleeper(world, opened)


def test_a_run_that_was_reaped_while_it_slept_reports_it_and_is_clean(sleeper: Sleeper) -> None:
    def wakes(run: Run) -> None:
        sleeper.sleep(run, sleeper.reaped)
        with step(run, Step.INJECT):
            run.intend("late", "late", DeletePod(pod="late"), None, LONG)

    history = sleeper.opened.play(wakes).history
    assert {one.by for one in history.of(FaultUndone)} == {"reaper"}
    assert {one.cleanliness for one in history.of(FaultUndone)} == {Cleanliness.CLEAN}
    assert [one.by for one in history.of(Aborted)] == ["guard"]
    assert [one.outcome for one in history.of(StepEnded) if one.step is Step.INJECT] == [StepOutcome.ABORTED]
    assert any(
        "a reaper took the run for dead meanwhile and undid everything" in one.what for one in history.of(Problem)
    )
    assert history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.CLEAN)]
    assert sleeper.opened.is_as_if_it_never_was()


def test_a_reaped_run_does_not_undo_what_another_run_has_done_since(sleeper: Sleeper) -> None:
    def wakes(run: Run) -> None:
        sleeper.sleep(run, lambda: (sleeper.reaped(), sleeper.taint()))

    sleeper.opened.play(wakes)
    assert [key for key, _, _ in sleeper.world.taints(sleeper.node)] == [KEY]


def test_a_reaped_run_removes_its_own_pod_that_came_late(sleeper: Sleeper) -> None:
    """A request that was under way while its sender slept."""
    opened = sleeper.opened

    def late() -> None:
        sleeper.reaped()
        sleeper.world.add_pod(opened.pod, opened.id)

    opened.play(lambda run: sleeper.sleep(run, late))
    assert ("flow", "mark") in sleeper.ended()
    assert opened.world.pods(opened.id) == []


def test_a_run_that_slept_and_was_not_reaped_undoes_itself(sleeper: Sleeper) -> None:
    sleeper.opened.play(lambda run: sleeper.sleep(run, lambda: None))
    assert {by for by, _ in sleeper.ended()} == {"flow"}
    assert sleeper.world.taints(sleeper.node) == []
    assert sleeper.opened.is_as_if_it_never_was()


def test_what_a_step_misses_after_the_lease_is_lost_is_an_abort(world: ScriptedWorld, opened: OpenedRun) -> None:
    def fails(run: Run) -> None:
        world.clock.freeze(31)
        with step(run, Step.AWAIT_ALERT):
            raise StepFailedError("agent pod left no word")

    opened.play(fails)
    assert [one.by for one in opened.history.of(Aborted)] == ["guard"]


def test_a_lost_ledger_of_a_run_that_lives_is_no_proof(opened: OpenedRun) -> None:
    """Somebody deleted it by hand: nothing was undone by that."""

    def goes_on(run: Run) -> None:
        opened.world.core.delete_namespaced_config_map(ledger_name(opened.id), NAMESPACE)
        with pytest.raises(KubernetesError, match="404"):
            run.intend(unique("next"), "next", DeletePod(pod="next"), None, LONG)

    opened.play(goes_on)
    assert {one.by for one in opened.history.of(FaultUndone)} == {"flow"}
    assert opened.world.holders().get(CLUSTER_LEASE) is None
