"""A whole game-day whose only signal is the canary's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gameday.cluster.gpu_pods import gpu_pod
from gameday.history.events import CanaryMeasured, QaChecked
from tests.game_days.conftest import QUICK, Arena, changed
from tests.rehearsal.processes import until

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]

NETEM = {"type": "net_netem", "interface": "ib0", "delay": "50ms", "loss": "1%", "hold": "60s"}
PINGS = {"measure": "round-trip time", "interface": "ib0", "rises_above": "1000%", "tolerance": "300%"}


@pytest.mark.slow
def test_a_slow_interface_shows_in_the_canary_alone_and_is_fast_again(clean_arena: Arena) -> None:
    plan = changed(changed(QUICK, "fault", NETEM), "recover.remediation", "none")
    expect = {"canary": PINGS, "stays_schedulable_for": "1s", "workloads": {"running_pods": "kept"}}
    played = clean_arena.play(changed(plan, "expect", expect))
    assert played.exit_code == 0, played.output
    before, during, after = played.history.of(CanaryMeasured)
    assert [seen.phase for seen in (before, during, after)] == ["before", "during", "after"]
    assert during.value is not None
    assert during.value > 40
    assert after.peer == before.peer
    assert [checked.ok for checked in played.history.of(QaChecked) if checked.check == "canary"] == [True]
    assert played.verdicts()["canary"] == "held"


@contextmanager
def one_gpu_free(arena: Arena) -> Iterator[str]:
    """A node of which a pod of ours, beside the training that is there, leaves one GPU for the length of the block."""
    free = {name: arena.cluster.size.gpus for name in arena.nodes()}
    for pod in arena.core.list_pod_for_all_namespaces(field_selector="status.phase=Running").items:
        free[pod.spec.node_name] -= gpu_pod(pod).gpus
    node = next(name for name, gpus in free.items() if gpus > 0)
    taken = free[node] - 1
    limits = {"nvidia.com/gpu": str(taken)} if taken else {}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"limits": limits}}
    chosen = {"kubernetes.io/hostname": node}
    pod = {"metadata": {"name": "taker"}, "spec": {"nodeSelector": chosen, "containers": [container]}}
    arena.core.create_namespaced_pod("training", pod)
    try:
        until(lambda: arena.core.read_namespaced_pod("taker", "training").status.phase == "Running", 30, "a taker")
        yield node
    finally:
        arena.core.delete_namespaced_pod("taker", "training", grace_period_seconds=0)


@pytest.mark.slow
def test_a_node_without_two_free_gpus_leaves_an_all_reduce_unknown(clean_arena: Arena) -> None:
    fault = {"type": "nccl_environment", "variables": {"NCCL_P2P_DISABLE": 1}, "hold": "60s"}
    plan = changed(changed(QUICK, "fault", fault), "recover.remediation", "none")
    expect = {"canary": {"falls_below": "50%"}, "stays_schedulable_for": "1s"}
    with one_gpu_free(clean_arena) as node:
        played = clean_arena.play(changed(changed(plan, "expect", expect), "targets.names", [node]))
    assert played.exit_code == 2, played.output
    assert played.verdicts()["canary"] == "unknown"
    assert "two free GPUs" in played.history.of(CanaryMeasured)[0].detail
