"""Whole game-days that keep their hands off: a foreign loop repairs the node, or does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from gameday.agent.security import security_of
from gameday.agent.task import RemediateTask
from gameday.cluster.manifests import ROLE_LABEL, agent_pod
from gameday.cluster.profile import load_profile
from gameday.cluster.watch import Follower
from gameday.history.events import FaultUndone, IntentRecorded, NodeReturned, RepairHopSeen
from gameday.values.results import RepairHop
from tests.game_days.conftest import PATIENCE_S, QUICK, Arena, changed, patient
from tests.rehearsal import processes
from tests.support.plans import HOPS, STATE
from tests.support.world import until

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(1800)]


def plan_for(node: str) -> dict[str, Any]:
    plan = changed(changed(QUICK, "recover", {"by": "cluster", "hops": HOPS}), "targets", {"names": [node]})
    plan = changed(plan, "expect.workloads", {"running_pods": "any"})
    return changed(plan, "fault.hold", "60s")


class ForeignLoop:
    """A controller that reboots a tainted node, calls it validated and gives it back.

    It reboots only once the fault is out: a game-day that withdraws the fault later than on this repair's first sign
    gets no repair within the bounds of its plan.
    """

    def __init__(self, arena: Arena, node: str) -> None:
        self._arena, self._node = arena, node
        self._boot = arena.core.read_node(node).status.node_info.boot_id
        self._follower = Follower(arena.core.list_node, field_selector=f"metadata.name={node}")
        self._thread = threading.Thread(target=self._repair, daemon=True)

    def __enter__(self) -> ForeignLoop:
        self._follower.__enter__()
        self._follower.require_synced()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(PATIENCE_S)
        self._follower.stop()

    def _repair(self) -> None:
        self._await(lambda node: bool(node.spec.taints))
        self._label("repairing")
        withdrawn = "the fault to be withdrawn on the first sign of the repair"
        processes.until(lambda: not self._injectors(), PATIENCE_S, withdrawn)
        self._reboot()
        self._await(lambda node: node.status.node_info.boot_id != self._boot and self._is_ready(node))
        self._label("validated")
        patch = {"spec": {"taints": None}, "metadata": {"labels": {STATE: None}}}
        self._arena.core.patch_node(self._node, patch, field_manager="foreign-repairer")

    def _await(self, condition: Callable[[Any], bool]) -> None:
        assert until(self._follower, lambda: condition(self._follower.named(self._node)))

    def _injectors(self) -> list[Any]:
        """Return the injector pods on the node; one is there from before the taint on."""
        pods = self._arena.core.list_namespaced_pod("gameday", label_selector=f"{ROLE_LABEL}=inject").items
        return [pod for pod in pods if pod.spec.node_name == self._node]

    @staticmethod
    def _is_ready(node: Any) -> bool:
        ready = any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
        return ready and (node.status.allocatable or {}).get("nvidia.com/gpu") == "4"

    def _label(self, value: str) -> None:
        patch = {"metadata": {"labels": {STATE: value}}}
        self._arena.core.patch_node(self._node, patch, field_manager="foreign-repairer")

    def _reboot(self) -> None:
        task = RemediateTask(run_id="foreign", node=self._node, action="reboot")
        pod = agent_pod(
            "foreign-reboot",
            task=task.model_dump_json(),
            role=task.role,
            run_id="foreign",
            node=self._node,
            profile=load_profile(self._arena.cluster.profile),
            deadline=timedelta(minutes=2),
            security=security_of(task),
        )
        self._arena.core.create_namespaced_pod("gameday", pod)


@pytest.fixture
def node(clean_arena: Arena) -> Iterator[str]:
    yield sorted(clean_arena.nodes())[-1]
    pods = clean_arena.core.list_namespaced_pod("gameday", label_selector="gameday.dev/run=foreign").items
    for pod in pods:
        clean_arena.core.delete_namespaced_pod(pod.metadata.name, "gameday", grace_period_seconds=0)


@pytest.mark.gate
def test_a_cluster_that_repairs_its_node_passes_and_is_timed_hop_by_hop(clean_arena: Arena, node: str) -> None:
    with ForeignLoop(clean_arena, node):
        played = clean_arena.play(patient(plan_for(node)))
    assert played.exit_code == 0, played.output
    hops = {seen.hop: seen for seen in played.history.of(RepairHopSeen)}
    assert list(hops) == [hop for hop in RepairHop if hop is not RepairHop.WORK_MOVED]
    assert hops[RepairHop.QUARANTINED].by == "gameday-health"
    assert hops[RepairHop.REPAIR_BEGUN].by == hops[RepairHop.VALIDATED].by == "foreign-repairer"
    assert played.history.of(NodeReturned) == []
    assert {intent.undo for intent in played.history.of(IntentRecorded)} == {"delete-pod", "take-out-fault"}
    assert played.verdicts()["qa"] == played.verdicts()["workload-return"] == "held"
    out = next(record.at for record, one in played.history.with_times(FaultUndone) if one.intent == "inject")
    assert hops[RepairHop.REPAIR_BEGUN].at < out < hops[RepairHop.REPAIRED].at
