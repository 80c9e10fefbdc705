"""The undo of pods, jobs, labels and nodes, carried out and verified."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from gameday.cluster.gpu_class import change_gpu_class
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.pods import PodFollower
from gameday.ledger.entries import DeleteJob, DeletePod, RestoreGpuClasses, RestoreNode, Undo
from gameday.ledger.ledger import Ledger
from gameday.ledger.undo import undo_entry
from gameday.values.gpu_class import GPU_CLASS_LABEL
from gameday.values.results import Cleanliness
from gameday_control_plane.api_clients.lists import NAMESPACE as LOAD
from gameday_control_plane.undos import EndApiCanary
from gameday_control_plane.values.api_requests import api_canary_lease
from tests.ledger.undo.entries import FOREIGN, LATER, TAINT, entry, take_out
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.scripted.api_server import ADMINISTRATOR
from tests.support.world import NAMESPACE, PATIENCE_S, Kubelet

# --- pods and jobs ---


def test_a_pod_is_deleted_and_seen_to_go(world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str) -> None:
    world.add_pod("p", run, node="n1")
    with Kubelet(world, run, {}):
        done = undo_entry(reaper, entry(DeletePod(pod="p")), run, pods)
    assert (done.cleanliness, done.evidence) == (Cleanliness.CLEAN, ("pod p deleted",))
    assert world.pods(run) == []
    assert undo_entry(reaper, entry(DeletePod(pod="p")), run, pods).cleanliness is Cleanliness.CLEAN


@pytest.mark.usefixtures("soon")
def test_a_pod_that_does_not_end_is_unknown_and_clean_once_it_has(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    uid = world.add_pod("p", run, node="n1")
    done = undo_entry(reaper, entry(DeletePod(pod="p")), run, pods)
    assert done.cleanliness is Cleanliness.UNKNOWN
    assert "still ending" in done.evidence[0]
    world.remove_pod("p")
    assert pods.wait_gone("p", uid, PATIENCE_S)
    assert undo_entry(reaper, entry(DeletePod(pod="p")), run, pods).cleanliness is Cleanliness.CLEAN


@pytest.mark.usefixtures("soon")
def test_a_pod_the_watch_has_not_met_is_not_called_gone(world: ScriptedWorld, reaper: Kubernetes, run: str) -> None:
    world.add_pod("p", run, node="n1")
    blind = PodFollower(reaper, run)
    assert undo_entry(reaper, entry(DeletePod(pod="p")), run, blind).cleanliness is Cleanliness.UNKNOWN


def test_a_job_goes_with_its_pods(world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str) -> None:
    world.add_job("j", run, node="n1")
    assert pods.wait(lambda: bool(pods.present()), PATIENCE_S)
    with Kubelet(world, run, {}):
        done = undo_entry(reaper, entry(DeleteJob(job="j")), run, pods)
    assert done.cleanliness is Cleanliness.CLEAN
    assert world.pods(run) == []
    assert world.batch.list_namespaced_job(NAMESPACE).items == []
    assert undo_entry(reaper, entry(DeleteJob(job="j")), run, pods).cleanliness is Cleanliness.CLEAN


@pytest.mark.usefixtures("soon")
def test_a_jobs_pods_that_do_not_end_are_unknown(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    world.add_job("j", run, node="n1")
    assert pods.wait(lambda: bool(pods.present()), PATIENCE_S)
    assert undo_entry(reaper, entry(DeleteJob(job="j")), run, pods).cleanliness is Cleanliness.UNKNOWN


@pytest.mark.usefixtures("soon")
def test_nothing_is_said_of_a_jobs_pods_without_a_watch(reaper: Kubernetes, run: str) -> None:
    blind = PodFollower(reaper, run)
    assert undo_entry(reaper, entry(DeleteJob(job="j")), run, blind).cleanliness is Cleanliness.UNKNOWN


@pytest.fixture
def canary(world: ScriptedWorld, run: str) -> EndApiCanary:
    """An API canary whose pod has its Lease."""
    lease = api_canary_lease(run)
    world.core.create_namespace({"metadata": {"name": LOAD}})
    world.coordination.create_namespaced_lease(LOAD, {"metadata": {"name": lease}, "spec": {}})
    world.add_pod("p", run, node="n1")
    return EndApiCanary(pod="p", lease=lease)


@pytest.mark.parametrize("left", [True, False])
def test_the_api_canarys_lease_goes_after_its_pod(
    world: ScriptedWorld, pods: PodFollower, run: str, canary: EndApiCanary, left: bool
) -> None:
    if not left:
        world.coordination.delete_namespaced_lease(canary.lease, LOAD)
    with Kubelet(world, run, {}), world.connected(ADMINISTRATOR) as kubernetes:
        done = undo_entry(kubernetes, entry(canary), run, pods)
    assert (done.cleanliness, done.evidence[0]) == (Cleanliness.CLEAN, "pod p deleted")
    assert canary.lease in done.evidence[1]
    assert world.pods(run) == []
    assert world.coordination.list_namespaced_lease(LOAD).items == []


@pytest.mark.usefixtures("soon")
def test_the_api_canarys_lease_stays_as_long_as_its_pod_may_write_it(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, canary: EndApiCanary
) -> None:
    assert undo_entry(reaper, entry(canary), run, pods).cleanliness is Cleanliness.UNKNOWN
    assert len(world.coordination.list_namespaced_lease(LOAD).items) == 1


# --- labels of GPU classes ---


def test_gpu_classes_are_as_before_where_nobody_has_changed_them_since(
    world: ScriptedWorld, reaper: Kubernetes, runner: Kubernetes, pods: PodFollower, run: str
) -> None:
    had, had_none, had_none_either, others, later = (world.add_node() for _ in range(5))
    for node in (had, had_none, had_none_either, others):
        change_gpu_class(runner, node, lambda _: "slow")
    change_gpu_class(runner, later, lambda _: "fast")  # by a later run of ours
    world.core.patch_node(others, {"metadata": {"labels": {GPU_CLASS_LABEL: "typical"}}})
    nodes = ("gone", had, had_none, had_none_either, others, later, "gone-too")
    undo = RestoreGpuClasses(before={had: "fast"}, set_to=dict.fromkeys(nodes, "slow"))
    done = undo_entry(runner, entry(undo, None), run, pods)
    assert done.cleanliness is Cleanliness.CLEAN
    assert set(done.evidence) == {
        "3 nodes as before",
        "2 nodes gone",
        "2 nodes left alone: somebody else has set them",
    }
    labels = [world.core.read_node(node).metadata.labels.get(GPU_CLASS_LABEL) for node in nodes[1:-1]]
    assert labels == ["fast", None, None, "typical", "fast"]


def test_gpu_classes_that_cannot_be_written_are_unknown(
    world: ScriptedWorld, runner: Kubernetes, pods: PodFollower, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise ApiException(status=500, reason="etcd is away")

    node = world.add_node()
    change_gpu_class(runner, node, lambda _: "slow")
    monkeypatch.setattr(runner.core, "patch_node", away)
    done = undo_entry(runner, entry(RestoreGpuClasses(before={}, set_to={node: "slow"}), None), run, pods)
    assert done.cleanliness is Cleanliness.UNKNOWN
    assert world.core.read_node(node).metadata.labels[GPU_CLASS_LABEL] == "slow"


# --- nodes ---


def test_a_node_gets_back_what_it_was(world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str) -> None:
    node = world.add_node(taints=[FOREIGN, TAINT.model_dump()], unschedulable=True)
    restore = entry(RestoreNode(keys=(TAINT.key,), unschedulable=False), node)
    done = undo_entry(reaper, restore, run, pods)
    assert done.cleanliness is Cleanliness.CLEAN
    assert "removed: trainy.konduktor.ai/faulty=true:NoSchedule" in done.evidence
    assert world.taints(node) == [("example.com/busy", "yes", "NoSchedule")]
    again = undo_entry(reaper, restore, run, pods)
    assert (again.cleanliness, again.evidence[1]) == (Cleanliness.CLEAN, "removed: none")


def test_a_node_that_is_no_longer_there_needs_nothing(reaper: Kubernetes, pods: PodFollower, run: str) -> None:
    done = undo_entry(reaper, entry(RestoreNode(keys=(TAINT.key,), unschedulable=False), "gone"), run, pods)
    assert (done.cleanliness, done.evidence) == (Cleanliness.CLEAN, ("node gone is no longer there",))


def test_an_answer_that_shows_the_taint_still_there_is_dirty(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a webhook that puts back what is taken off."""
    node = world.add_node(taints=[TAINT.model_dump()])
    monkeypatch.setattr(reaper.core, "patch_node", lambda name, *_, **__: reaper.core.read_node(name))
    done = undo_entry(reaper, entry(RestoreNode(keys=(TAINT.key,), unschedulable=False), node), run, pods)
    assert done.cleanliness is Cleanliness.DIRTY


def test_a_cordon_that_is_not_ours_is_left_alone(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    node = world.add_node(taints=[TAINT.model_dump()], unschedulable=True)
    done = undo_entry(reaper, entry(RestoreNode(keys=(TAINT.key,), unschedulable=None), node), run, pods)
    assert done.cleanliness is Cleanliness.CLEAN
    assert world.taints(node) == []
    assert world.core.read_node(node).spec.unschedulable is True


@pytest.mark.parametrize("fault", [None, Cleanliness.UNKNOWN, Cleanliness.DIRTY])
@pytest.mark.parametrize(
    "quarantine", [{"taints": [TAINT.model_dump()]}, {"unschedulable": True}], ids=["taint", "cordon"]
)
def test_a_node_whose_fault_is_not_provably_out_stays_out_of_service(
    world: ScriptedWorld,
    reaper: Kubernetes,
    pods: PodFollower,
    run: str,
    ledger: Ledger,
    fault: Cleanliness | None,
    quarantine: dict[str, Any],
) -> None:
    node = world.add_node(**quarantine)
    injected = ledger.intend(id="inject", act="inject", node=node, undo=take_out("i"), expires=LATER)
    if fault:
        ledger.settle(injected, fault, "flow", ["no answer"])
    restore = entry(RestoreNode(keys=(TAINT.key,), unschedulable=False), node)
    done = undo_entry(reaper, restore, run, pods, ledger=ledger)
    assert done.cleanliness is (fault or Cleanliness.UNKNOWN)
    assert done.evidence[0] == "kept out of service: the fault is not provably out"
    ledger.settle(injected, Cleanliness.CLEAN, "flow", [])
    assert undo_entry(reaper, restore, run, pods, ledger=ledger).cleanliness is Cleanliness.CLEAN
    assert world.taints(node) == []
    assert not world.core.read_node(node).spec.unschedulable


def test_a_fault_that_is_not_out_keeps_no_node_that_is_not_quarantined_nor_another(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, ledger: Ledger
) -> None:
    bare, other = world.add_node(), world.add_node(taints=[TAINT.model_dump()])
    for number, node in enumerate((bare, "gone")):
        ledger.intend(id=f"inject-{number}", act="inject", node=node, undo=take_out("i"), expires=LATER)
    evidence = {}
    for node in (bare, other, "gone"):
        restore = entry(RestoreNode(keys=(TAINT.key,), unschedulable=False), node)
        done = undo_entry(reaper, restore, run, pods, ledger=ledger)
        assert done.cleanliness is Cleanliness.CLEAN
        evidence[node] = done.evidence
    assert world.taints(other) == []
    assert evidence[bare] == ("nothing to remove", "read: taints none, unschedulable False")
    assert evidence["gone"] == ("node gone is no longer there",)


# --- a cluster that does not answer ---


@pytest.mark.parametrize(
    "kind",
    [DeletePod(pod="p"), DeleteJob(job="j"), take_out("i"), RestoreNode(keys=(TAINT.key,), unschedulable=False)],
    ids=lambda kind: kind.kind,
)
def test_an_error_is_unknown_and_says_why(
    reaper: Kubernetes, pods: PodFollower, run: str, kind: Undo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise ApiException(status=500, reason="etcd is away")

    for api, name in ((reaper.core, "delete_namespaced_pod"), (reaper.core, "read_node")):
        monkeypatch.setattr(api, name, away)
    monkeypatch.setattr(reaper.batch, "delete_namespaced_job", away)
    done = undo_entry(reaper, entry(kind), run, pods)
    assert done.cleanliness is Cleanliness.UNKNOWN
    assert "500 etcd is away" in done.evidence[0]
