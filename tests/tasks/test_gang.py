"""A gang against an API server and the embedded scheduler: where it lands, what is left, and when none is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gameday.expect.placement import ExpectedPlacement
from gameday.guard.preview import planned_changes
from gameday.history.events import FaultUndone, GangPlaced, IntentRecorded
from gameday.plan.models import Plan
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.tasks.moments.gang import contained
from gameday.values.gpu_class import GPU_CLASS_LABEL
from gameday.values.results import StepOutcome
from tests.support.world import Kubelet, Process, World

PODS = 3
POOL = {"nvidia.com/gpu.present": "true"}
ROOM = {"nvidia.com/gpu": "8", "cpu": "8", "memory": "8Gi", "pods": "20"}
FOREVER = ("--node-monitor-grace", "600")
"""No kubelet keeps the nodes' leases."""

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def scheduler(server: World) -> Iterator[None]:
    admin = str(server.admin_kubeconfig)
    process = Process(
        "kubesim.controllers", "--kubeconfig-scheduler", admin, "--kubeconfig-controllers", admin, *FOREVER
    )
    yield
    process.end()


@pytest.fixture
def fast(world: World) -> str:
    """The fast one of four nodes of eight GPUs, on which one GPU is taken so that the others have more room."""
    name = ""
    for gpu_class in ("slow", "typical", "typical", "fast"):
        name = world.add_node(labels=POOL | {GPU_CLASS_LABEL: gpu_class})
        world.core.patch_node_status(name, {"status": {"allocatable": ROOM}})
    world.add_pod("busy", "another", node=name, gpus=1)
    return name


def with_gang(pods: int = PODS, *, prefers_fast: bool = True) -> Callable[[Plan], Plan]:
    wanted = ExpectedPlacement(pods=pods, prefers_fast=prefers_fast)
    return lambda plan: plan.model_copy(update={"expect": plan.expect.model_copy(update={"placement": wanted})})


def placed(run: Run, result: StepResult) -> GangPlaced:
    contained(run, result)
    (found,) = run.history().of(GangPlaced)
    return found


def played(world: World, run: Run, result: StepResult) -> GangPlaced:
    with run.pods, Kubelet(world, run.id, {}):
        run.pods.require_synced()
        return placed(run, result)


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("prefers_fast", [True, False])
def test_a_gang_lands_on_the_fast_node_and_one_that_knows_no_classes_does_not(
    world: World, new_run: Callable[..., Run], fast: str, prefers_fast: bool
) -> None:
    run, result = new_run(change=with_gang(prefers_fast=prefers_fast)), StepResult()
    found = played(world, run, result)
    assert ({pod.node for pod in found.pods} == {fast}) is prefers_fast
    assert ({pod.gpu_class for pod in found.pods} == {"fast"}) is prefers_fast
    assert len(found.pods) == PODS
    assert ["is not on nodes of the class fast" in reason for reason in result.reasons] == (
        [] if prefers_fast else [True]
    )
    gang = [f"gang-{index}" for index in range(PODS)]
    assert [event.intent for event in run.history().of(IntentRecorded)] == gang
    assert [(event.intent, event.cleanliness) for event in run.history().of(FaultUndone)] == [
        (intent, "clean") for intent in gang
    ]
    assert world.pods(run.id) == []


def test_without_room_on_fast_nodes_no_pod_is_sent(world: World, new_run: Callable[..., Run], fast: str) -> None:
    run, result = new_run(change=with_gang(8)), StepResult()
    found = placed(run, result)
    assert (found.pods, "7 GPUs are free on 1 node(s)" in found.why_not_sent) == ((), True)
    assert result.outcome is StepOutcome.UNKNOWN
    assert (world.pods(run.id), run.history().of(IntentRecorded)) == ([], [])


@pytest.mark.parametrize("labels", [{}, {GPU_CLASS_LABEL: "slow"}])
def test_without_a_fast_node_no_pod_is_sent(world: World, new_run: Callable[..., Run], labels: dict[str, str]) -> None:
    world.add_node(labels=POOL | labels)
    run = new_run(change=with_gang())
    assert "`gameday fleet` writes" in placed(run, StepResult()).why_not_sent


def test_a_cordoned_fast_node_has_no_room(world: World, new_run: Callable[..., Run]) -> None:
    world.add_node(labels=POOL | {GPU_CLASS_LABEL: "fast"}, unschedulable=True)
    assert "0 GPUs are free" in placed(new_run(change=with_gang()), StepResult()).why_not_sent


def test_the_dry_run_shows_every_pod_as_it_would_be_sent(new_run: Callable[..., Run]) -> None:
    run = new_run(change=with_gang())
    pods = [one for one in planned_changes(run, ()) if "-gang" in one.object]
    assert [one.object for one in pods] == [f"pod/{run.record.object_name('gang', index)}" for index in range(PODS)]
    assert all(one.manifest and "nodeAffinity" in one.manifest["spec"]["affinity"] for one in pods)
