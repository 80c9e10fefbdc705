"""Every kind of undo, carried out and verified; the agents here are a kubelet's word, in test_agents they are real."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from gameday.agent.task import PriorNote, UndoTask
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.pods import PodFollower
from gameday.history.events import Cleanliness, Taint
from gameday.ledger import undo
from gameday.ledger.entries import DeleteJob, DeletePod, Entry, RestoreNode, TakeOutFault, Undo
from gameday.ledger.undo import undo_entry
from tests.kubernetes.world import NAMESPACE, PATIENCE_S, Kubelet, World, unique, word

TAINT = Taint(key="trainy.konduktor.ai/faulty", value="true", effect="NoSchedule")
FOREIGN = {"key": "example.com/busy", "value": "yes", "effect": "NoSchedule"}


def entry(undo: Undo, node: str | None = "n1") -> Entry:
    return Entry(id="e", seq=0, act="act", node=node, undo=undo, expires=datetime(2030, 1, 1, tzinfo=UTC))


def take_out(pod: str) -> TakeOutFault:
    return TakeOutFault(pod=pod, gpu=0, fault={"type": "xid", "xid": 79})


@pytest.fixture
def run() -> str:
    return unique("run")


@pytest.fixture
def pods(reaper: Kubernetes, run: str) -> Iterator[PodFollower]:
    with PodFollower(reaper, run) as following:
        assert following.wait_synced(PATIENCE_S)
        yield following


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what never comes: it is not waited for."""
    monkeypatch.setattr(undo, "_GONE_WITHIN_S", 0.05)
    monkeypatch.setattr(undo, "_SECOND_AGENT_WITHIN_S", 0.05)


# --- pods and jobs ---


def test_a_pod_is_deleted_and_seen_to_go(world: World, reaper: Kubernetes, pods: PodFollower, run: str) -> None:
    world.add_pod("p", run, node="n1")
    with Kubelet(world, run, {}):
        done = undo_entry(reaper, entry(DeletePod(pod="p")), run, pods)
    assert (done.cleanliness, done.evidence) == (Cleanliness.CLEAN, ("pod p deleted",))
    assert world.pods(run) == []
    assert undo_entry(reaper, entry(DeletePod(pod="p")), run, pods).cleanliness is Cleanliness.CLEAN


@pytest.mark.usefixtures("soon")
def test_a_pod_that_does_not_end_is_unknown_and_clean_once_it_has(
    world: World, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    uid = world.add_pod("p", run, node="n1")
    done = undo_entry(reaper, entry(DeletePod(pod="p")), run, pods)
    assert done.cleanliness is Cleanliness.UNKNOWN
    assert "still ending" in done.evidence[0]
    world.remove_pod("p")
    assert pods.wait_gone("p", uid, PATIENCE_S)
    assert undo_entry(reaper, entry(DeletePod(pod="p")), run, pods).cleanliness is Cleanliness.CLEAN


@pytest.mark.usefixtures("soon")
def test_a_pod_the_watch_has_not_met_is_not_called_gone(world: World, reaper: Kubernetes, run: str) -> None:
    world.add_pod("p", run, node="n1")
    blind = PodFollower(reaper, run)
    assert undo_entry(reaper, entry(DeletePod(pod="p")), run, blind).cleanliness is Cleanliness.UNKNOWN


def test_a_job_goes_with_its_pods(world: World, reaper: Kubernetes, pods: PodFollower, run: str) -> None:
    world.add_job("j", run, node="n1")
    assert pods.wait(lambda: bool(pods.present()), PATIENCE_S)
    with Kubelet(world, run, {}):
        done = undo_entry(reaper, entry(DeleteJob(job="j")), run, pods)
    assert done.cleanliness is Cleanliness.CLEAN
    assert world.pods(run) == []
    assert world.batch.list_namespaced_job(NAMESPACE).items == []
    assert undo_entry(reaper, entry(DeleteJob(job="j")), run, pods).cleanliness is Cleanliness.CLEAN


@pytest.mark.usefixtures("soon")
def test_a_jobs_pods_that_do_not_end_are_unknown(world: World, reaper: Kubernetes, pods: PodFollower, run: str) -> None:
    world.add_job("j", run, node="n1")
    assert pods.wait(lambda: bool(pods.present()), PATIENCE_S)
    assert undo_entry(reaper, entry(DeleteJob(job="j")), run, pods).cleanliness is Cleanliness.UNKNOWN


@pytest.mark.usefixtures("soon")
def test_nothing_is_said_of_a_jobs_pods_without_a_watch(reaper: Kubernetes, run: str) -> None:
    blind = PodFollower(reaper, run)
    assert undo_entry(reaper, entry(DeleteJob(job="j")), run, blind).cleanliness is Cleanliness.UNKNOWN


# --- nodes ---


def test_a_node_gets_back_what_it_was(world: World, reaper: Kubernetes, pods: PodFollower, run: str) -> None:
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
    world: World, reaper: Kubernetes, pods: PodFollower, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a webhook that puts back what is taken off."""
    node = world.add_node(taints=[TAINT.model_dump()])
    monkeypatch.setattr(reaper.core, "patch_node", lambda name, *_, **__: reaper.core.read_node(name))
    done = undo_entry(reaper, entry(RestoreNode(keys=(TAINT.key,), unschedulable=False), node), run, pods)
    assert done.cleanliness is Cleanliness.DIRTY


# --- faults ---


def test_the_injectors_own_word_is_enough(world: World, reaper: Kubernetes, pods: PodFollower, run: str) -> None:
    world.add_pod("i", run, node="n1", role="inject")
    with Kubelet(world, run, {"inject": word(Cleanliness.CLEAN, "read after: nothing")}) as kubelet:
        done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert (done.cleanliness, done.evidence, done.by_deadline) == (Cleanliness.CLEAN, ("read after: nothing",), False)
    assert kubelet.ended == ["i"]


def test_a_deadline_that_was_faster_is_named(world: World, reaper: Kubernetes, pods: PodFollower, run: str) -> None:
    world.add_pod("i", run, node="n1", role="inject")
    world.report("i", word(Cleanliness.CLEAN), "Failed", "DeadlineExceeded")
    assert pods.wait(lambda: (seen := pods.seen("i")) is not None and seen.ended, PATIENCE_S)
    done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert (done.cleanliness, done.by_deadline) == (Cleanliness.CLEAN, True)


@pytest.mark.parametrize("said", [None, "", "Killed", '{"role": "inject"}', "\x00\xff" * 100])
def test_without_a_readable_word_a_second_agent_undoes(
    world: World, reaper: Kubernetes, pods: PodFollower, run: str, said: str | None
) -> None:
    world.add_pod("i", run, node="n1", role="inject")
    words = {"inject": said, "undo": word(Cleanliness.CLEAN, "read after: nothing", role="undo")}
    with Kubelet(world, run, words) as kubelet:
        done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert done.cleanliness is Cleanliness.CLEAN
    assert done.evidence == ("injector left no last word", "read after: nothing")
    assert kubelet.ended == ["i", "i-undo"]
    assert world.pods(run) == []


def test_an_injector_that_says_dirty_is_followed_by_a_second_agent(
    world: World, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    world.add_pod("i", run, node="n1", role="inject")
    words: dict[str, str | None] = {
        "inject": word(Cleanliness.DIRTY, error="cannot write"),
        "undo": word(Cleanliness.DIRTY, "still there", role="undo"),
    }
    with Kubelet(world, run, words):
        done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert done.cleanliness is Cleanliness.DIRTY
    assert done.evidence == ("injector said dirty: cannot write", "still there")


@pytest.mark.usefixtures("soon")
def test_a_second_agent_that_does_not_answer_is_unknown(
    world: World, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    """As on a node that is gone: nobody is there to run it."""
    done = undo_entry(reaper, entry(take_out("i"), "gone"), run, pods)
    assert done.cleanliness is Cleanliness.UNKNOWN
    assert done.evidence == ("injector left no last word", "a second agent gave no answer")
    deleted = world.core.read_namespaced_pod("i-undo", NAMESPACE).metadata.deletion_timestamp
    assert deleted is not None, "and it is not left to run"


@pytest.mark.usefixtures("soon")
def test_a_second_agent_is_told_the_prior_values_that_the_ledger_holds(
    world: World, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    """The first agent was killed and took its memory along."""
    known = take_out("k").model_copy(update={"undo_state": {"limit": "700"}})
    undo_entry(reaper, entry(known, "gone"), run, pods)
    (container,) = world.core.read_namespaced_pod("k-undo", NAMESPACE).spec.containers
    task = next(variable.value for variable in container.env if variable.name == "GAMEDAY_TASK")
    assert UndoTask.model_validate_json(task).undo_state == {"limit": "700"}


def test_a_second_agent_is_told_what_the_first_printed_before_it_was_killed(
    world: World, reaper: Kubernetes, pods: PodFollower, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the fault's going in and the ledger's learning of it; its log is all there is."""
    world.add_pod("k", run, node="gone", role="inject")
    world.report("k", "", "Failed", "OOMKilled")
    assert pods.wait(lambda: (seen := pods.seen("k")) is not None and seen.ended, PATIENCE_S)
    log = "noise\n" + PriorNote(undo_state={"watts": "650"}).model_dump_json() + "\n{}"
    monkeypatch.setattr(reaper, "pod_log", {"k": log}.__getitem__)
    create, sent = reaper.create_pod, list[dict[str, Any]]()

    def created(manifest: dict[str, Any]) -> str:
        sent.append(manifest)
        return create(manifest)

    monkeypatch.setattr(reaper, "create_pod", created)
    with Kubelet(world, run, {"undo": word(Cleanliness.CLEAN, "650 W again", role="undo")}):
        done = undo_entry(reaper, entry(take_out("k"), "gone"), run, pods)
    (container,) = sent[0]["spec"]["containers"]
    task = next(variable["value"] for variable in container["env"] if variable["name"] == "GAMEDAY_TASK")
    assert UndoTask.model_validate_json(task).undo_state == {"watts": "650"}
    assert done.cleanliness is Cleanliness.CLEAN


def test_a_second_attempt_does_not_believe_the_first_ones_agent(
    world: World, reaper: Kubernetes, pods: PodFollower, run: str
) -> None:
    with Kubelet(world, run, {"undo": word(Cleanliness.UNKNOWN, "host away", role="undo")}):
        first = undo_entry(reaper, entry(take_out("i")), run, pods)
    with Kubelet(world, run, {"undo": word(Cleanliness.CLEAN, "out", role="undo")}):
        second = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert (first.cleanliness, second.cleanliness) == (Cleanliness.UNKNOWN, Cleanliness.CLEAN)


def test_another_reapers_agent_is_believed(world: World, reaper: Kubernetes, pods: PodFollower, run: str) -> None:
    world.add_pod("i-undo", run, node="n1", role="undo")
    with Kubelet(world, run, {"undo": word(Cleanliness.CLEAN, "theirs", role="undo")}):
        done = undo_entry(reaper, entry(take_out("i")), run, pods)
    assert (done.cleanliness, done.evidence[-1]) == (Cleanliness.CLEAN, "theirs")


@pytest.mark.usefixtures("soon")
def test_an_injector_that_is_still_undoing_is_let_be(
    world: World, reaper: Kubernetes, pods: PodFollower, run: str
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
