"""The nodes on which pods land: a gang that prefers fast nodes, and a target whose every GPU is in use."""

from __future__ import annotations

from pathlib import Path

from gameday.checks.verdict import Status
from gameday.history.events import GangPlaced, IntentRecorded, TargetsChosen, WorkloadSeen
from gameday.values.gpu_class import GPU_CLASS_LABEL
from tests.support.runs import with_plan
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.game_day import play, shipped
from tests.support.scripted.plans import changed, loaded, without_repair

GANG = "hardware-aware-placement"


def fast_nodes(cluster: ScriptedCluster) -> None:
    """Add two fast nodes, each with six free GPUs."""
    for number in (3, 4):
        cluster.add_node(f"gpu-node-{number}", labels={GPU_CLASS_LABEL: "fast"})
    cluster.clock.sleep(1.0)


def test_a_gang_lands_on_the_fast_nodes(reports: Path) -> None:
    played = play(GANG, reports=reports, prepare=fast_nodes)
    assert played.status("placement") is Status.HELD
    (placed,) = played.history.of(GangPlaced)
    assert {pod.node for pod in placed.pods} <= {"gpu-node-3", "gpu-node-4"}
    assert {f"gang-{index}" for index in range(3)} <= {one.intent for one in played.history.of(IntentRecorded)}
    assert played.cluster.left() == []


def test_fast_nodes_without_room_leave_it_unknown_and_no_pod_is_sent(reports: Path) -> None:
    plan = shipped(GANG)
    placement = plan.plan.expect.placement
    assert placement
    more = placement.model_copy(update={"pods": 13})
    expect = plan.plan.expect.model_copy(update={"placement": more})
    played = play(with_plan(plan, expect=expect), reports=reports, prepare=fast_nodes)
    assert played.status("placement") is Status.UNKNOWN
    (placed,) = played.history.of(GangPlaced)
    assert (placed.pods, "12 GPUs are free on 2 node(s)" in placed.why_not_sent) == ((), True)
    assert not [one for one in played.history.of(IntentRecorded) if one.intent.startswith("gang-")]
    assert played.cluster.left() == []


def test_a_node_that_was_never_out_of_service_is_at_work_though_full(reports: Path) -> None:
    """The scheduler's word counts that is about this node: the others' taint says nothing of it."""
    plan = changed(without_repair({"type": "xid", "xid": 13, "hold": "5s"}), "expect", {"stays_schedulable_for": "1s"})
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}

    def prepare(cluster: ScriptedCluster) -> None:
        cluster.add_pod("busy", node="gpu-node-1", gpus=6)
        cluster.server.administrator("PATCH", "/api/v1/nodes/gpu-node-2", {"spec": {"taints": [taint]}})
        cluster.clock.sleep(1.0)

    played = play(loaded(plan), reports=reports, prepare=prepare)
    assert (played.result.exit_code, played.not_held) == (0, [])
    (seen,) = [one for one in played.history.of(WorkloadSeen) if one.purpose == "return"]
    assert (seen.node, seen.ok) == ("gpu-node-1", True)
    assert "hold every GPU" in seen.detail


def test_two_runs_of_one_seed_choose_the_same_target(reports: Path) -> None:
    def with_nodes(cluster: ScriptedCluster) -> None:
        for number in range(3, 20):
            cluster.add_node(f"gpu-node-{number}")
        cluster.clock.sleep(1.0)

    def chosen(seed: int) -> tuple[str, ...]:
        played = play(loaded(changed(plan, "targets", {"seed": seed})), reports=reports, prepare=with_nodes)
        return tuple(target.node for target in played.history.of(TargetsChosen)[0].targets)

    plan = changed(without_repair({"type": "xid", "xid": 13, "hold": "5s"}), "expect", {"stays_schedulable_for": "1s"})
    assert chosen(11) == chosen(11) != chosen(12)
