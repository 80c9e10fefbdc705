"""The steps recover and QA where the cluster repairs: what is proved, what is left out, and that nothing is touched."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gameday.history.events import NodeReturned, QaLeftOut, StepEnded
from gameday.observe.cluster_repair import ClusterRepair
from gameday.observe.injected_fault import InjectedFault
from gameday.plan.models import Recovery
from gameday.run.repair import Repair
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.tasks import qa_node as qa_step
from gameday.tasks.await_repair import await_cluster_repairs
from tests.support.runs import follow_as_target
from tests.support.world import OPT_IN, World, unique

NewRun = Callable[..., Run]
pytestmark = pytest.mark.timeout(60)
TAINT = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
SHORT = {"within": "300ms"}


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.run.repair_watch._LATEST_SIGHT", timedelta(milliseconds=100))


class Stage:
    """A run whose fault is in on one node."""

    def __init__(self, world: World, new_run: NewRun, hops: dict[str, Any], **recover: Any) -> None:
        self.world, self.pool = world, {"karpenter.sh/nodepool": unique("pool")}
        self.node = world.add_node(labels=self.pool)
        recovery = Recovery.model_validate({"by": "cluster", "hops": hops} | recover)
        self.run = new_run(change=lambda plan: plan.model_copy(update={"recover": recovery}))
        self.target = follow_as_target(self.run, self.node)
        self.watched = ClusterRepair(self.run, self.target, [])
        now = datetime.now(UTC)
        self.watched.begin(now)
        tail: Any = None
        self.fault = InjectedFault(self.target, now, (), (), tail, self.watched)

    def recover(self) -> tuple[Repair, StepResult]:
        result = StepResult()
        (repair,) = await_cluster_repairs(self.run, result, [self.fault])
        return repair, result


@pytest.fixture
def stage(world: World, new_run: NewRun) -> Callable[..., Stage]:
    return lambda hops, **recover: Stage(world, new_run, hops, **recover)


@pytest.fixture
def no_qa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qa_step, "_passes", lambda *_: pytest.fail("QA was sent"))
    monkeypatch.setattr(Run, "undo", lambda *_: pytest.fail("something was undone"))


def qa(run: Run, repair: Repair, monkeypatch: pytest.MonkeyPatch) -> StepEnded:
    monkeypatch.setattr(type(run.ledger), "check_lease", lambda _: None)
    qa_step.qa_node.fn(run, [repair])
    ended = run.history().last(StepEnded)
    assert ended is not None
    return ended


@pytest.mark.usefixtures("no_qa")
def test_a_cluster_that_stops_breaks_the_step_and_qa_is_left_out_and_the_taint_stays(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = stage({"quarantined": {"within": "20s"}, "repaired": SHORT})
    scene.world.taint(scene.node, TAINT)
    repair, result = scene.recover()
    assert result.outcome == "broken"
    assert result.reasons == [
        f"the cluster's repair of {scene.node} stopped at the hop 'repaired': not within 0.3s",
    ]
    assert qa(scene.run, repair, monkeypatch).outcome == "unknown"
    assert scene.run.history().of(QaLeftOut)[0].why == "the cluster's repair stopped at the hop 'repaired'"
    assert scene.world.taints(scene.node) == [(TAINT["key"], "true", "NoSchedule")]


@pytest.mark.usefixtures("no_qa")
def test_a_node_that_stays_out_as_planned_leaves_qa_out_and_breaks_nothing(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = stage({"quarantined": {"within": "20s"}, "returned": SHORT}, node_ends="out-of-service")
    scene.world.taint(scene.node, TAINT)
    repair, result = scene.recover()
    assert (result.outcome, repair.left_out_because) == ("done", "the plan wants the node to stay out of service")
    assert qa(scene.run, repair, monkeypatch).outcome == "done"


def test_the_successor_is_the_one_that_qa_proves_and_it_counts_as_the_target_did_before(
    stage: Callable[..., Stage],
) -> None:
    scene = stage({"repaired": {"within": "20s"}, "ready": {"within": "20s"}, "returned": {"within": "20s"}})
    scene.world.core.delete_node(scene.node)
    successor = scene.world.add_node(labels=scene.pool | OPT_IN)
    repair, result = scene.recover()
    assert (result.outcome, repair.left_out_because) == ("done", "")
    assert (repair.target.node, repair.target.gpu) == (successor, scene.target.gpu)
    assert repair.target.before.allocatable_gpus == 8


@pytest.mark.usefixtures("no_qa")
def test_a_successor_that_did_not_opt_in_gets_no_pod_of_ours(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = stage({"repaired": {"within": "20s"}, "returned": {"within": "20s"}})
    scene.world.core.delete_node(scene.node)
    successor = scene.world.add_node(labels=scene.pool | {"gameday.dev/opt-in": "false"})
    repair, _ = scene.recover()
    assert repair.left_out_because == f"{successor} does not carry gameday.dev/opt-in=true"
    assert qa(scene.run, repair, monkeypatch).outcome == "unknown"


def test_a_node_that_passes_qa_is_seen_at_work_and_the_game_day_returns_nothing(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = stage({"returned": {"within": "20s"}})
    repair, result = scene.recover()
    at_work: list[tuple[str, bool]] = []

    def takes_work(run: Run, result: StepResult, target: Any, uids: Any, *, in_service: bool) -> None:
        at_work.append((target.node, in_service))

    monkeypatch.setattr(qa_step, "_passes", lambda *_: True)
    monkeypatch.setattr(qa_step, "check_takes_work", takes_work)
    assert (result.outcome, qa(scene.run, repair, monkeypatch).outcome) == ("done", "done")
    assert at_work == [(scene.node, True)]
    assert scene.run.history().of(NodeReturned) == []
