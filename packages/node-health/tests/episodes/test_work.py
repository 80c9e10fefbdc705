"""Whole episodes on an embedded API server, under the repairer's own rights."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kubernetes import client

from gameday.agent.task import GpuPodsNote
from gameday.errors import LeaseLostError
from gameday.xid.catalogue import Remedy
from gameday_health.episodes.acts import carry_out
from gameday_health.episodes.model import State
from gameday_health.episodes.node import REPAIR_ANNOTATION
from gameday_health.episodes.transitions import Repair, Return, needs_episode
from gameday_health.episodes.work import budget_left_s
from tests.health.episodes.conftest import OURS, PARTLY, PCI, Agents, Ward, boot, finish, gpu_pod, others, two_pods, xid
from tests.support.world import NAMESPACE

OTHER = {"key": "nvidia.com/gpu", "value": "", "effect": "NoSchedule"}


def test_a_reset_and_a_passed_qa_return_the_node_as_it_was(ward: Ward, agents: Agents) -> None:
    node = ward.quarantine(taints=[OTHER])
    ward.world.core.patch_node(node, {"metadata": {"annotations": {"mine": "kept"}, "labels": {"mine": "kept"}}})
    ward.open()
    episode = ward.work_off()
    assert episode.state is State.RETURNED and agents.actions() == ["gpu-reset"]
    metadata = ward.world.core.read_node(node).metadata
    assert metadata.annotations["mine"] == metadata.labels["mine"] == "kept"
    assert ward.taint_keys() == ["nvidia.com/gpu"] and ward.label() is None
    assert REPAIR_ANNOTATION not in (ward.world.core.read_node(node).metadata.annotations or {})
    assert ward.event_reasons() == [
        *("NodeDraining", "NodeDrained", "NodeRepairBegun", "GPUResetDone"),
        *("NodeValidating", "NodeValidated", "NodeReturned"),
    ]
    assert ward.world.holders() == {}


@pytest.mark.slow
def test_the_reset_names_the_gpu_and_the_kernel_log_is_marked_before_qa(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    ward.open()
    ward.work_off()
    assert [role for role, _, _ in agents.made] == ["remediate", "mark", "qa"]


def test_a_reboot_is_done_when_the_node_is_back_under_another_boot(ward: Ward, agents: Agents) -> None:
    ward.quarantine(xid(79, Remedy.REBOOT))
    ward.open()
    episode = ward.work_off()
    assert episode.state is State.RETURNED and agents.actions() == ["reboot"]
    assert [role for role, _, _ in agents.made] == ["remediate", "qa"]
    assert episode.qa[-1].boot != "b1"


def test_failed_qa_goes_one_rung_up_and_after_the_last_the_node_stays_out(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    ward.open()
    agents.answers["qa"] = "ecc: 3 errors"
    episode = ward.work_off()
    assert episode.state is State.HANDED_OVER
    assert agents.actions() == ["gpu-reset", "driver-restart", "reboot"]
    assert ward.taint_keys() == [OURS["key"]] and ward.label() == "handed-over"
    evidence = json.loads(ward.store.evidence(ward.node))
    assert "ecc: 3 errors" in json.dumps(evidence["episode"]["qa"]) and '"code":95' in evidence["reason"]
    assert ward.event_reasons()[-1] == "NodeHandedOver"
    assert "NodeReturned" not in ward.event_reasons()


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[bytes]]]:
    """The URL of a server that takes evidence, and what it took."""
    taken: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", taken
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_a_webhook_takes_the_evidence_of_a_node_that_needs_a_person(
    ward: Ward, agents: Agents, webhook: tuple[str, list[bytes]]
) -> None:
    url, taken = webhook
    ward.quarantine(xid(64, Remedy.CONTACT_SUPPORT))
    ward.open()
    episode = ward.work_off(webhook={"url": url})
    assert episode.state is State.HANDED_OVER and episode.notified and agents.made == []
    (bundle,) = map(json.loads, taken)
    assert bundle["episode"]["node"] == ward.node and "support" in bundle["episode"]["why"]


def test_taint_and_cordon_of_others_stay_and_the_episode_names_them(ward: Ward, agents: Agents) -> None:
    ward.quarantine(taints=[{"key": "example.com/broken", "effect": "NoSchedule"}], unschedulable=True)
    ward.open()
    episode = ward.work_off()
    assert episode.state is State.RETURNED and "a cordon of another owner stays" in episode.why
    assert "example.com/broken" in ward.taint_keys() and OURS["key"] not in ward.taint_keys()
    assert ward.world.core.read_node(ward.node).spec.unschedulable


@pytest.mark.slow
def test_the_same_key_with_another_value_is_somebody_elses_taint(ward: Ward) -> None:
    theirs = {**OURS, "value": "maintenance"}
    ward.quarantine()
    ward.world.taint(ward.node, theirs)
    found = ward.api.node(ward.node)
    assert found
    seen = ward.settings().seen(found)
    assert not seen.ours and seen.foreign == (f"taint {OURS['key']}",) and not needs_episode(seen, None)
    ward.world.taint(ward.node, {**theirs, "effect": "NoExecute"}, OURS)
    found = ward.api.node(ward.node)
    assert found
    kept = ward.settings().seen(found).other_taints(ward.settings().taint)
    assert [taint["effect"] for taint in kept] == ["NoExecute"]


@pytest.mark.slow
def test_a_new_fault_during_qa_goes_one_rung_up(ward: Ward, agents: Agents) -> None:
    first = xid()
    ward.quarantine(first)
    ward.open()
    agents.answers["qa"] = [None, ""]
    agents.before["qa"] = lambda: ward.refault(first, xid(48))
    episode = ward.work_off()
    assert episode.state is State.RETURNED and agents.actions() == ["gpu-reset", "driver-restart"]
    assert [run.outcome for run in episode.qa] == ["failed", "passed"]


@pytest.mark.slow
def test_no_proof_is_shorter_than_the_policys_length(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    ward.open()
    episode = ward.work_off(qa={"within": "10s", "length": "1s"})
    (run,) = episode.qa
    assert run.ended is not None and run.ended - run.began >= timedelta(seconds=1)


def test_a_boot_that_nobody_asked_for_voids_qa(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    ward.open()
    agents.before["qa"] = lambda: boot(ward.world, ward.node, "b2")
    episode = ward.work_off()
    assert episode.state is State.RETURNED and episode.qa[-1].boot == "b2" and len(episode.qa) == 2


def test_a_person_who_removes_the_taint_is_respected(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    ward.open()
    agents.answers["qa"] = None
    agents.before["qa"] = lambda: ward.world.taint(ward.node)
    episode = ward.work_off()
    assert episode.state is State.CANCELLED and ward.label() is None and ward.taint_keys() == []
    assert ward.event_reasons()[-1] == "NodeRepairCancelled"
    pods = ward.world.core.list_namespaced_pod(NAMESPACE).items
    assert all(pod.metadata.deletion_timestamp for pod in pods)


@pytest.mark.slow
def test_a_person_who_uncordons_is_respected_and_the_taint_stays(ward: Ward, agents: Agents) -> None:
    ward.quarantine(unschedulable=True)
    ward.open()
    agents.answers["remediate"] = None
    uncordon = {"spec": {"unschedulable": None}}
    agents.before["remediate"] = lambda: ward.world.core.patch_node(ward.node, uncordon)
    episode = ward.work_off()
    assert episode.state is State.CANCELLED and "uncordoned" in episode.why
    assert OURS["key"] in ward.taint_keys() and ward.label() is None


def test_a_cancelled_flow_run_stops_the_repair_and_the_node_stays_out(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    ward.open()
    asked: list[str] = []
    agents.answers["remediate"] = None
    agents.before["remediate"] = lambda: asked.append("a person cancelled the flow run")
    with ward.work(cancelled=lambda: asked[0] if asked else "") as work:
        assert finish(work) is State.CANCELLED
    assert ward.taint_keys() == [OURS["key"]] and ward.label() is None


@pytest.mark.slow
def test_a_node_that_vanishes_in_mid_repair_ends_the_episode(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    ward.open()
    agents.answers["remediate"] = None
    agents.before["remediate"] = lambda: ward.world.core.delete_node(ward.node)
    assert ward.work_off().state is State.NODE_GONE


@pytest.mark.usefixtures("pods_of_others")
def test_a_budget_that_never_lets_go_hands_the_node_over_unrepaired(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    gpu_pod(ward, "kept")
    # A budget does not protect a pod that is still Pending.
    ward.world.core.patch_namespaced_pod_status("kept", "default", {"status": {"phase": "Running"}})
    selector = {"matchLabels": {"app": "kept"}}
    budget = {"metadata": {"name": "kept"}, "spec": {"maxUnavailable": 0, "selector": selector}}
    ward.world.policy.create_namespaced_pod_disruption_budget("default", budget)
    ward.open()
    episode = ward.work_off(drain={"within": "1s"})
    assert episode.state is State.HANDED_OVER and "default/kept" in episode.why
    assert agents.made == [] and ward.taint_keys() == [OURS["key"]]


@pytest.mark.usefixtures("pods_of_others")
@pytest.mark.slow
def test_a_drain_that_waits_evicts_nobody(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    gpu_pod(ward, "kept")
    ward.open()
    assert ward.work_off(drain={"mode": "wait", "within": "1s"}).state is State.HANDED_OVER
    (pod,) = ward.world.core.list_namespaced_pod("default").items
    assert pod.metadata.deletion_timestamp is None


@pytest.mark.usefixtures("pods_of_others")
@pytest.mark.slow
def test_pods_of_daemon_sets_stay_on_a_drained_node(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    apps = client.AppsV1Api(ward.world.core.api_client)
    labels = {"app": "exporter"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    made = apps.create_namespaced_daemon_set("default", {"metadata": {"name": "exporter"}, "spec": spec})
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "uid": made.metadata.uid}
    gpu_pod(ward, "exporter", owner={**owner, "controller": True})
    ward.open()
    assert ward.work_off().state is State.RETURNED
    (pod,) = ward.world.core.list_namespaced_pod("default").items
    apps.delete_namespaced_daemon_set("exporter", "default")
    assert pod.metadata.deletion_timestamp is None


@pytest.mark.slow
def test_an_agent_without_a_result_is_a_failed_attempt(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    ward.open()
    agents.answers["remediate"] = [None, ""]
    ladder = [{"repair": "gpu-reset", "within": "1s"}, {"repair": "driver-restart", "within": "10s"}]
    episode = ward.work_off(ladder=ladder)
    assert [attempt.outcome for attempt in episode.attempts] == ["failed", "passed"]
    assert "left no result within 1 s" in episode.attempts[0].why


def test_a_budget_is_never_longer_than_itself_whatever_the_clock_says() -> None:
    minute, now = timedelta(minutes=1), datetime.now(UTC)
    assert budget_left_s(now + timedelta(hours=5), minute) == 60
    assert budget_left_s(now - timedelta(hours=5), minute) == 0
    assert 25 < budget_left_s(now - timedelta(seconds=30), minute) <= 30


def test_two_processes_never_repair_the_same_node(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    ward.open()
    with ward.work(claim_s=1) as first:
        with pytest.raises(LeaseLostError), ward.work(claim_s=1):
            pytest.fail("the claim of a living process was taken over")
        assert finish(first) is State.RETURNED
    assert agents.actions() == ["gpu-reset"]


def test_the_work_of_a_dead_process_is_taken_over_and_the_dead_one_can_write_no_more(
    ward: Ward, agents: Agents
) -> None:
    ward.quarantine()
    ward.open()
    with ward.work(claim_s=1) as dead:
        dead._claim._repetition.stop()  # its thread sleeps, as of a machine that is suspended
        with ward.work(claim_s=1) as living:
            with pytest.raises(LeaseLostError):
                dead.save(dead.episode)
            assert finish(living) is State.RETURNED


def test_a_process_that_slept_too_long_gives_no_node_back(ward: Ward, agents: Agents) -> None:
    ward.quarantine()
    ward.open()
    with ward.work() as work:
        while not isinstance(step := work.next_step(), Return):
            assert step
            carry_out(work, step)
        work._claim._renewed_at = float("-inf")  # as after a sleep of a minute
        with pytest.raises(LeaseLostError):
            carry_out(work, step)
    assert ward.taint_keys() == [OURS["key"]]


@pytest.mark.usefixtures("pods_of_others")
def test_only_the_pod_on_the_faulty_gpu_leaves_and_the_taint_stays_until_the_return(
    ward: Ward, agents: Agents, agents_log: list[GpuPodsNote]
) -> None:
    ward.quarantine()
    two_pods(ward, agents_log)
    ward.open()
    seen: list[tuple[list[str], list[str]]] = []
    for role in ("remediate", "qa"):
        agents.before[role] = lambda: seen.append((others(ward), ward.taint_keys()))
    # The time of evict_after is for pods on other GPUs only.
    episode = ward.work_off(drain={**PARTLY, "evict_after": "1h"})
    assert episode.state is State.RETURNED and episode.drained_gpus == (PCI,)
    assert seen == [(["other"], [OURS["key"]])] * 2
    assert [role for role, _, _ in agents.made] == ["gpu-users", "remediate", "mark", "qa"]
    assert others(ward) == ["other"]


@pytest.mark.usefixtures("pods_of_others")
@pytest.mark.slow
def test_the_other_pods_leave_before_a_qa_that_loads_the_gpus(
    ward: Ward, agents: Agents, agents_log: list[GpuPodsNote]
) -> None:
    ward.quarantine()
    two_pods(ward, agents_log)
    ward.open()
    seen: list[list[str]] = []
    for role in ("remediate", "qa"):
        agents.before[role] = lambda: seen.append(others(ward))
    episode = ward.work_off(drain=PARTLY, qa={"floors": {"gemm_tflops": 1}, "within": "10s", "length": "0s"})
    assert episode.state is State.RETURNED and seen == [["other"], []]


@pytest.mark.usefixtures("pods_of_others")
@pytest.mark.parametrize("cause", ["the look fails", "no note of the faulty GPU"])
def test_where_the_agent_cannot_tell_every_pod_with_a_gpu_leaves(
    ward: Ward, agents: Agents, agents_log: list[GpuPodsNote], cause: str
) -> None:
    ward.quarantine()
    two_pods(ward, agents_log)
    if cause == "the look fails":
        agents.answers["gpu-users"] = "NVML does not answer"
    else:
        agents_log.pop(0)
    ward.open()
    assert ward.work_off(drain=PARTLY).state is State.RETURNED
    assert others(ward) == []


RESTART = [{"repair": "restart-workload", "quiet": "1s"}, {"repair": "gpu-reset", "within": "10s"}]


@pytest.mark.usefixtures("pods_of_others")
@pytest.mark.slow
def test_a_restart_of_the_workload_evicts_the_pod_on_the_faulty_gpu_and_repairs_nothing(
    ward: Ward, agents: Agents, agents_log: list[GpuPodsNote]
) -> None:
    ward.quarantine(xid(94, Remedy.NONE))
    two_pods(ward, agents_log)
    ward.open()
    episode = ward.work_off(ladder=RESTART)
    assert episode.state is State.RETURNED and agents.actions() == [] and others(ward) == ["other"]
    (attempt,) = episode.attempts
    assert attempt.ended and attempt.ended - attempt.began >= timedelta(seconds=1)
    assert "WorkloadRestarted" in ward.event_reasons()
    assert [role for role, _, _ in agents.made] == ["gpu-users", "mark", "qa"]


@pytest.mark.usefixtures("pods_of_others")
@pytest.mark.slow
def test_a_fault_that_comes_back_without_its_workload_is_repaired(
    ward: Ward, agents: Agents, agents_log: list[GpuPodsNote]
) -> None:
    fault = xid(94, Remedy.NONE)
    ward.quarantine(fault)
    two_pods(ward, agents_log)
    ward.open()
    with ward.work(ladder=[{**RESTART[0], "quiet": "1h"}, RESTART[1]]) as work:
        while not isinstance(step := work.next_step(), Repair):
            assert step
            carry_out(work, step)
        ward.refault(fault, xid(94, Remedy.NONE))
        assert carry_out(work, step) == "a new fault within 3600 s"
        assert finish(work) is State.RETURNED
    assert agents.actions() == ["gpu-reset"] and others(ward) == []
    assert [attempt.outcome for attempt in ward.episode.attempts] == ["failed", "passed"]


@pytest.mark.slow
def test_a_reset_in_progress_leaves_a_gpu_alone_whose_fault_came_later(ward: Ward, agents: Agents) -> None:
    first = xid()
    ward.quarantine(first)
    ward.open()
    with ward.work(drain=PARTLY) as work:
        while not isinstance(step := work.next_step(), Repair):
            assert step
            carry_out(work, step)
        work.begin(step)
    ward.refault(first, xid().model_copy(update={"pci": "0000:8f:00"}))
    assert ward.work_off(drain=PARTLY).state is State.RETURNED
    # The pods on the later one were not drained for this reset.
    assert agents.actions() == ["gpu-reset", "driver-restart"]
