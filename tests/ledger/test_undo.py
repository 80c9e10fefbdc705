"""Every kind of undo, carried out and verified; the agents here are a kubelet's word, in test_agents they are real."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from gameday.agent.task import AgentResult, InjectedNote, PriorNote, UndoTask
from gameday.api_clients.lists import NAMESPACE as LOAD
from gameday.cluster.gpu_class import change_gpu_class
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.operands import AWAY
from gameday.cluster.pods import PodFollower
from gameday.errors import KubernetesError
from gameday.faults.webhook_unreachable import WebhookUnreachableFault
from gameday.ledger import undo
from gameday.ledger.entries import (
    BringBackOperands,
    DeleteJob,
    DeletePod,
    EndApiCanary,
    Entry,
    Header,
    RestoreGpuClasses,
    RestoreNode,
    TakeOutFault,
    Undo,
)
from gameday.ledger.ledger import Ledger, ledger_name
from gameday.ledger.undo import UndoResult, undo_entry
from gameday.run.agents import AGENT_START_TIMEOUT
from gameday.values.api_requests import api_canary_lease
from gameday.values.gpu_class import GPU_CLASS_LABEL
from gameday.values.nodes import Taint
from gameday.values.results import Cleanliness
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.scripted.api_server import ADMINISTRATOR
from tests.support.world import NAMESPACE, PATIENCE_S, Kubelet, termination_message, unique

TAINT = Taint(key="trainy.konduktor.ai/faulty", value="true", effect="NoSchedule")
LATER = datetime(2030, 1, 1, tzinfo=UTC)
FOREIGN = {"key": "example.com/busy", "value": "yes", "effect": "NoSchedule"}


def entry(undo: Undo, node: str | None = "n1") -> Entry:
    return Entry(id="e", seq=0, act="act", node=node, undo=undo, expires=LATER)


def take_out(pod: str) -> TakeOutFault:
    return TakeOutFault(pod=pod, gpu=0, fault={"type": "xid", "xid": 79})


@pytest.fixture
def run() -> str:
    return unique("run")


@pytest.fixture(autouse=True)
def n1(world: ScriptedWorld) -> Iterator[None]:
    """The node that the entries are of; no kubelet is there but a test's."""
    world.core.create_node({"metadata": {"name": "n1"}, "spec": {}})
    yield
    world.core.delete_node("n1")


@pytest.fixture
def pods(reaper: Kubernetes, run: str) -> Iterator[PodFollower]:
    with PodFollower(reaper, run) as following:
        assert following.wait_synced(PATIENCE_S)
        yield following


@pytest.fixture
def ledger(runner: Kubernetes, run: str) -> Ledger:
    return Ledger(runner, Header(run_id=run, plan="p", started=LATER, operator="ada", host="here"))


def prior_values(manifest: Any) -> dict[str, str]:
    """The prior values in a second agent's order."""
    (container,) = manifest["spec"]["containers"]
    task = next(variable["value"] for variable in container["env"] if variable["name"] == "GAMEDAY_TASK")
    return UndoTask.model_validate_json(task).undo_state


@pytest.fixture
def sent(reaper: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The pods that are made from now on."""
    create, made = reaper.create_pod, list[dict[str, Any]]()

    def created(manifest: dict[str, Any]) -> str:
        made.append(manifest)
        return create(manifest)

    monkeypatch.setattr(reaper, "create_pod", created)
    return made


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what never comes: it is not waited for."""
    monkeypatch.setattr(undo, "_GONE_WITHIN_S", 0.05)
    monkeypatch.setattr(undo, "_SECOND_AGENT_TIMEOUT_S", 0.05)


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


# --- faults ---


def test_the_injectors_own_word_is_enough(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    world.add_pod("i", run, node="n1", role="inject")
    with Kubelet(world, run, {"inject": termination_message(Cleanliness.CLEAN, "read after: nothing")}) as kubelet:
        done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert (done.cleanliness, done.evidence, done.by_deadline) == (Cleanliness.CLEAN, ("read after: nothing",), False)
    assert kubelet.ended == ["i"]


def test_a_deadline_that_was_faster_is_named(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    world.add_pod("i", run, node="n1", role="inject")
    world.report("i", termination_message(Cleanliness.CLEAN), "Failed", "DeadlineExceeded")
    assert pods.wait(lambda: (seen := pods.seen("i")) is not None and seen.ended, PATIENCE_S)
    done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert (done.cleanliness, done.by_deadline) == (Cleanliness.CLEAN, True)


@pytest.mark.parametrize("said", [None, "", "Killed", '{"role": "inject"}', "\x00\xff" * 100])
def test_without_a_readable_word_a_second_agent_undoes(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, said: str | None
) -> None:
    world.add_pod("i", run, node="n1", role="inject")
    words = {"inject": said, "undo": termination_message(Cleanliness.CLEAN, "read after: nothing", role="undo")}
    with Kubelet(world, run, words) as kubelet:
        done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert done.cleanliness is Cleanliness.CLEAN
    assert done.evidence == ("injector left no message", "read after: nothing")
    assert kubelet.ended == ["i", "i-undo"]
    assert world.pods(run) == []


def test_an_injector_that_says_dirty_is_followed_by_a_second_agent(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    world.add_pod("i", run, node="n1", role="inject")
    words: dict[str, str | None] = {
        "inject": termination_message(Cleanliness.DIRTY, error="cannot write"),
        "undo": termination_message(Cleanliness.DIRTY, "still there", role="undo"),
    }
    with Kubelet(world, run, words):
        done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert done.cleanliness is Cleanliness.DIRTY
    assert done.evidence == ("injector reported dirty: cannot write", "still there")


@pytest.mark.usefixtures("soon")
def test_a_second_agent_that_does_not_answer_is_unknown(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    """As on a node that is down: nobody is there to run it."""
    done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert done.cleanliness is Cleanliness.UNKNOWN
    assert done.evidence == ("injector left no message", "a second agent left no message")
    deleted = world.core.read_namespaced_pod("i-undo", NAMESPACE).metadata.deletion_timestamp
    assert deleted is not None, "and it is not left to run"


def test_a_second_agent_that_failed_has_undone_nothing(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    """As one whose image is older than its task: it reads none, and says truly that it put nothing in."""
    world.add_pod("i", run, node="n1", role="inject")
    said = termination_message(Cleanliness.CLEAN, role="unknown", error="GAMEDAY_TASK is not a valid task")
    with Kubelet(world, run, {"undo": said}):
        done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert done.cleanliness is Cleanliness.UNKNOWN
    assert done.evidence[-1] == "a second agent undid nothing: GAMEDAY_TASK is not a valid task"


def test_to_a_node_that_is_gone_no_second_agent_is_sent(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    done = undo_entry(reaper, entry(take_out("i"), "gone"), run, pods)
    assert done.cleanliness is Cleanliness.UNKNOWN
    *_, why, hint = done.evidence
    assert why == "node gone is deleted, and no second agent can run there"
    assert hint.endswith(f"this forgets it: kubectl -n gameday delete configmap gameday-run-{run}")
    assert world.pods(run) == []


def test_a_fault_is_out_where_the_cluster_took_its_node_away(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    """No kubelet is left to end the injector's pod, which is removed without waiting for one."""
    world.add_pod("i", run, "gone")
    assert pods.wait(lambda: pods.seen("i") is not None, PATIENCE_S)
    fault = take_out("i").model_copy(update={"goes_with_node": True})
    done = undo_entry(reaper, entry(fault, "gone"), run, pods)
    assert done.cleanliness is Cleanliness.CLEAN
    assert done.evidence == ("node gone is no longer there: the cluster took the fault away with it",)
    assert world.pods(run) == []


@pytest.mark.usefixtures("soon")
def test_a_second_agent_gets_the_prior_values_from_the_ledger(
    reaper: Kubernetes, pods: PodFollower, run: str, sent: list[dict[str, Any]]
) -> None:
    """The first agent was killed and took its memory along."""
    known = take_out("k").model_copy(update={"undo_state": {"limit": "700"}})
    undo_entry(reaper, entry(known), run, pods)
    assert prior_values(sent[0]) == {"limit": "700"}
    assert sent[0]["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent", "the registry may be away"


PRINTED = {"watts": "650", "mode": "1", "clock": "9"}
"""All that the killed injector had printed of what it found, in several notes."""


def killed(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injector `k` died between the fault's going in and the ledger's learning of it; its log is all there is."""
    world.add_pod("k", run, node="n1", role="inject")
    world.report("k", "", "Failed", "OOMKilled")
    assert pods.wait(lambda: (seen := pods.seen("k")) is not None and seen.ended, PATIENCE_S)
    notes = (
        PriorNote(undo_state={"watts": "650"}),
        PriorNote(undo_state={"mode": "1"}),
        InjectedNote(undo_state={"clock": "9"}, written_at=LATER, evidence=()),
    )
    log = "\n".join(["noise", *(note.model_dump_json() for note in notes), "{}"])
    monkeypatch.setattr(reaper, "pod_log", {"k": log}.__getitem__)


def test_a_second_agent_gets_the_state_that_the_killed_first_one_printed(
    world: ScriptedWorld,
    reaper: Kubernetes,
    pods: PodFollower,
    run: str,
    sent: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed(world, reaper, pods, run, monkeypatch)
    with Kubelet(world, run, {"undo": termination_message(Cleanliness.CLEAN, "650 W again", role="undo")}):
        done = undo_entry(reaper, entry(take_out("k")), run, pods)
    assert prior_values(sent[0]) == PRINTED
    assert done.cleanliness is Cleanliness.CLEAN


def prior_in_cluster(world: ScriptedWorld, run: str) -> dict[str, str]:
    stored = world.core.read_namespaced_config_map(ledger_name(run), NAMESPACE).data
    found = Entry.model_validate_json(stored["0000-inject.json"])
    assert isinstance(found.undo, TakeOutFault)
    return found.undo.undo_state


def test_what_a_killed_agent_printed_is_in_the_ledger_before_its_log_goes_with_its_pod(
    world: ScriptedWorld,
    reaper: Kubernetes,
    pods: PodFollower,
    run: str,
    monkeypatch: pytest.MonkeyPatch,
    ledger: Ledger,
) -> None:
    killed(world, reaper, pods, run, monkeypatch)
    delete, known = reaper.delete_pod, list[dict[str, str]]()
    injected = ledger.intend(id="inject", act="inject", node="n1", undo=take_out("k"), expires=LATER)

    def deleted(name: str) -> str | None:
        known.append(prior_in_cluster(world, run))
        return delete(name)

    monkeypatch.setattr(reaper, "delete_pod", deleted)
    with Kubelet(world, run, {}):
        done = undo_entry(reaper, injected, run, pods, ledger=ledger)
    assert done.cleanliness is Cleanliness.UNKNOWN
    assert known[0] == PRINTED
    ledger.settle(injected, done.cleanliness, "reaper", done.evidence)
    assert prior_in_cluster(world, run) == PRINTED, "for the next attempt"


def test_what_a_dying_agent_said_of_the_prior_values_outlives_a_second_one_that_does_not_answer(
    world: ScriptedWorld,
    reaper: Kubernetes,
    run: str,
    sent: list[dict[str, Any]],
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(undo, "_SECOND_AGENT_TIMEOUT_S", 0.05)
    ledger.intend(id="inject", act="inject", node="n1", undo=take_out("i"), expires=LATER)
    world.add_pod("i", run, node="n1", role="inject")
    said = AgentResult(role="inject", ok=False, cleanliness=Cleanliness.DIRTY, undo_state={"watts": "500"})
    with Kubelet(world, run, {"inject": said.model_dump_json()}) as kubelet:
        for _ in range(2):
            (injected,) = ledger.open_entries()
            with PodFollower(reaper, run) as pods:  # as each visit of the reaper has its own
                assert pods.wait_synced(PATIENCE_S)
                done = undo_entry(reaper, injected, run, pods, ledger=ledger)
            ledger.settle(injected, done.cleanliness, "reaper", done.evidence)
    assert kubelet.ended[0] == "i"
    assert [prior_values(manifest) for manifest in sent] == [{"watts": "500"}, {"watts": "500"}]


def test_a_second_agent_has_as_long_to_start_as_the_first_had_but_for_a_signal(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo, "_SECOND_AGENT_AFTER_SIGNAL_S", 0.0)
    monkeypatch.setattr(undo, "_GONE_WITHIN_S", 0.05)
    with Kubelet(world, run, {"undo": termination_message(Cleanliness.CLEAN, "out", role="undo")}):
        assert undo_entry(reaper, entry(take_out("i")), run, pods).cleanliness is Cleanliness.CLEAN
    hurried = undo_entry(reaper, entry(take_out("j")), run, pods, after_signal=True)
    assert hurried.evidence[-1] == "a second agent left no message"
    assert AGENT_START_TIMEOUT.total_seconds() <= undo._SECOND_AGENT_TIMEOUT_S


def test_a_second_attempt_does_not_believe_the_first_ones_agent(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    with Kubelet(world, run, {"undo": termination_message(Cleanliness.UNKNOWN, "host away", role="undo")}):
        first = undo_entry(reaper, entry(take_out("i")), run, pods)
    with Kubelet(world, run, {"undo": termination_message(Cleanliness.CLEAN, "out", role="undo")}):
        second = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert (first.cleanliness, second.cleanliness) == (Cleanliness.UNKNOWN, Cleanliness.CLEAN)


@pytest.mark.usefixtures("soon")
def test_a_second_attempt_whose_agent_says_nothing_does_not_repeat_the_first_ones_word(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    with Kubelet(world, run, {"undo": termination_message(Cleanliness.DIRTY, "still in", role="undo")}):
        assert undo_entry(reaper, entry(take_out("i")), run, pods).cleanliness is Cleanliness.DIRTY
    second = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert (second.cleanliness, second.evidence[-1]) == (Cleanliness.UNKNOWN, "a second agent left no message")


@pytest.mark.usefixtures("soon")
def test_a_second_agent_has_the_rights_at_the_api_server_that_its_fault_needs(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, sent: list[dict[str, Any]]
) -> None:
    for account in (WebhookUnreachableFault.api_account, "gameday-agent"):
        with suppress(ApiException):  # of the same account as another's
            world.core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": account}})
    outage = TakeOutFault(pod="w", gpu=0, fault={"type": "webhook_unreachable", "hold": "2m"})
    for fault in (outage, take_out("i")):
        done = undo_entry(reaper, entry(fault), run, pods)
        assert done.evidence[-1] == "a second agent left no message", done.evidence
    accounts = [one["spec"]["serviceAccountName"] for one in sent]
    assert accounts == [WebhookUnreachableFault.api_account, "gameday-agent"]
    assert [one["spec"]["automountServiceAccountToken"] for one in sent] == [True, False]


def test_another_reapers_agent_is_believed(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    began = world.clock.monotonic()
    world.add_pod("i-undo", run, node="n1", role="undo")
    with Kubelet(world, run, {"undo": termination_message(Cleanliness.CLEAN, "theirs", role="undo")}):
        done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert (done.cleanliness, done.evidence[-1]) == (Cleanliness.CLEAN, "theirs")
    assert world.clock.monotonic() - began < 1, "and nobody waits longer than for its end"


@pytest.mark.usefixtures("soon")
def test_an_injector_that_is_still_undoing_is_let_be(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    world.add_pod("i", run, node="n1", role="inject")
    done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert (done.cleanliness, world.pods(run)) == (Cleanliness.UNKNOWN, ["i"])
    assert "still undoing" in done.evidence[0]


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


# --- the GPU operator's operands ---

PLUGIN = "nvidia.com/gpu.deploy.device-plugin"


@pytest.mark.parametrize(
    ("value", "after", "cleanliness"),
    [
        (AWAY, "true", Cleanliness.CLEAN),
        ("true", "true", Cleanliness.CLEAN),
        ("false", "false", Cleanliness.CLEAN),  # a person's word since then
        (f"{AWAY}_paused-for-driver-upgrade", f"{AWAY}_paused-for-driver-upgrade", Cleanliness.UNKNOWN),
    ],
)
def test_operands_come_back_by_their_labels_as_we_left_them(
    world: ScriptedWorld,
    reaper: Kubernetes,
    pods: PodFollower,
    run: str,
    value: str,
    after: str,
    cleanliness: Cleanliness,
) -> None:
    world.core.patch_node("n1", {"metadata": {"labels": {PLUGIN: value, "mine": "kept"}}})
    done = undo_entry(reaper, entry(BringBackOperands(labels=(PLUGIN,))), run, pods)
    assert (done.cleanliness, done.evidence) == (cleanliness, (f"label {PLUGIN}: {after}",))
    labels = world.core.read_node("n1").metadata.labels
    assert (labels[PLUGIN], labels["mine"]) == (after, "kept")


def plugin(world: ScriptedWorld) -> str:
    return str(world.core.read_node("n1").metadata.labels[PLUGIN])


@pytest.mark.parametrize("reported", [Cleanliness.CLEAN, Cleanliness.DIRTY])
def test_operands_are_away_while_the_fault_comes_out_and_back_once_that_is_known(
    world: ScriptedWorld,
    reaper: Kubernetes,
    pods: PodFollower,
    run: str,
    monkeypatch: pytest.MonkeyPatch,
    reported: Cleanliness,
) -> None:
    world.core.patch_node("n1", {"metadata": {"labels": {PLUGIN: "true"}}})
    meanwhile = list[str]()

    def out(*_: Any, **__: Any) -> UndoResult:
        meanwhile.append(plugin(world))
        return UndoResult(reported, ("as the agent read it",))

    monkeypatch.setattr(undo, "_take_out_fault", out)
    fault = take_out("i").model_copy(update={"operands": (PLUGIN,)})
    done = undo_entry(reaper, entry(fault), run, pods)
    assert (done.cleanliness, done.evidence[-1]) == (reported, f"label {PLUGIN}: true")
    assert (meanwhile, plugin(world)) == ([AWAY], "true")


def test_operands_that_somebody_else_pauses_meanwhile_are_not_called_back(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.core.patch_node("n1", {"metadata": {"labels": {PLUGIN: "true"}}})
    paused = f"{AWAY}_paused-for-driver-upgrade"

    def out(*_: Any, **__: Any) -> UndoResult:
        world.core.patch_node("n1", {"metadata": {"labels": {PLUGIN: paused}}})
        return UndoResult(Cleanliness.CLEAN, ("out",))

    monkeypatch.setattr(undo, "_take_out_fault", out)
    fault = take_out("i").model_copy(update={"operands": (PLUGIN,)})
    done = undo_entry(reaper, entry(fault), run, pods)
    assert (done.cleanliness, done.evidence) == (Cleanliness.UNKNOWN, ("out", f"label {PLUGIN}: {paused}"))


def test_operands_are_not_sent_away_for_a_fault_that_took_itself_out(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.core.patch_node("n1", {"metadata": {"labels": {PLUGIN: "true"}}})
    world.add_pod("i", run, node="n1", role="inject")
    world.report("i", termination_message(Cleanliness.CLEAN, "out"))
    assert pods.wait(lambda: (seen := pods.seen("i")) is not None and seen.ended, PATIENCE_S)
    monkeypatch.setattr(undo, "send_away", lambda *_: pytest.fail("sent away"))
    fault = take_out("i").model_copy(update={"operands": (PLUGIN,)})
    with Kubelet(world, run, {"inject": termination_message(Cleanliness.CLEAN, "out")}):
        assert undo_entry(reaper, entry(fault), run, pods).cleanliness is Cleanliness.CLEAN
    assert plugin(world) == "true"


@pytest.mark.parametrize(
    ("status", "tried", "cleanliness"), [(404, True, Cleanliness.CLEAN), (500, False, Cleanliness.UNKNOWN)]
)
def test_only_on_a_node_that_is_gone_may_a_fault_be_taken_out_with_its_operands_there(
    reaper: Kubernetes,
    pods: PodFollower,
    run: str,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    tried: bool,
    cleanliness: Cleanliness,
) -> None:
    def refused(*_: Any) -> None:
        raise KubernetesError("https://server", "patch node: refused", status=status)

    tries = list[int]()
    monkeypatch.setattr(undo, "send_away", refused)
    monkeypatch.setattr(
        undo, "_take_out_fault", lambda *_, **__: tries.append(1) or UndoResult(Cleanliness.CLEAN, ("out",))
    )
    fault = take_out("i").model_copy(update={"operands": (PLUGIN,)})
    node = "gone" if status == 404 else "n1"
    assert (undo_entry(reaper, entry(fault, node), run, pods).cleanliness, bool(tries)) == (cleanliness, tried)


def test_operands_stay_away_while_it_is_not_known_whether_the_fault_is_out(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.core.patch_node("n1", {"metadata": {"labels": {PLUGIN: "true"}}})
    results = [UndoResult(Cleanliness.UNKNOWN, ("still undoing",)), UndoResult(Cleanliness.CLEAN, ("out",))]
    monkeypatch.setattr(undo, "_take_out_fault", lambda *_, **__: results.pop(0))
    fault = take_out("i").model_copy(update={"operands": (PLUGIN,)})
    first = undo_entry(reaper, entry(fault), run, pods)
    assert (first.cleanliness, plugin(world)) == (Cleanliness.UNKNOWN, AWAY)
    assert "stay away until it is out" in first.evidence[-1]
    assert undo_entry(reaper, entry(fault), run, pods).cleanliness is Cleanliness.CLEAN
    assert plugin(world) == "true"


def test_operands_of_a_node_that_is_gone_are_nobodys(reaper: Kubernetes, pods: PodFollower, run: str) -> None:
    done = undo_entry(reaper, entry(BringBackOperands(labels=(PLUGIN,)), "gone"), run, pods)
    assert (done.cleanliness, done.evidence) == (Cleanliness.CLEAN, ("node gone is no longer there",))
