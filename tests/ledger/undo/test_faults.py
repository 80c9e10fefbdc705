"""The undo of faults; the agents here are a kubelet's word, in tests/ledger/test_agents.py they are real."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from gameday.agent.task import AgentResult, InjectedNote, PriorNote, UndoTask
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.pods import PodFollower
from gameday.ledger import undo
from gameday.ledger.entries import (
    Entry,
    TakeOutFault,
)
from gameday.ledger.ledger import Ledger, ledger_name
from gameday.ledger.undo import undo_entry
from gameday.run.agents import AGENT_START_TIMEOUT
from gameday.values.results import Cleanliness
from gameday_control_plane.faults.webhook_unreachable import WebhookUnreachableFault
from tests.ledger.undo.entries import LATER, entry, take_out
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import NAMESPACE, PATIENCE_S, Kubelet, termination_message


def prior_values(manifest: Any) -> dict[str, str]:
    """The prior values in a second agent's order."""
    (container,) = manifest["spec"]["containers"]
    task = next(variable["value"] for variable in container["env"] if variable["name"] == "GAMEDAY_TASK")
    return UndoTask.model_validate_json(task).undo_state


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
