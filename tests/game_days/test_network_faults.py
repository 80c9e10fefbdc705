"""A whole game-day whose only signal is the canary's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gameday.history.events import CanaryMeasured, QaChecked
from tests.game_days.conftest import QUICK, Arena, changed, patient
from tests.rehearsal.processes import until

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(1800)]

NETEM = {"type": "net_netem", "interface": "ib0", "delay": "50ms", "loss": "1%", "hold": "60s"}
BUSY = "70%"
"""Tolerance of a rate over real sockets. The test's machine relays the data beside other tests, at a third at times."""
PINGS = {"measure": "round-trip time", "interface": "ib0", "rises_above": "1000%", "tolerance": "300%"}


@pytest.mark.slow
def test_a_slow_interface_shows_in_the_canary_alone_and_is_fast_again(clean_arena: Arena) -> None:
    plan = changed(changed(QUICK, "fault", NETEM), "recover.remediation", "none")
    all_reduce = {"interface": "ib0", "falls_below": "25%", "tolerance": BUSY}
    expect = {
        "canary": PINGS,
        "all_reduce": all_reduce,
        "stays_schedulable_for": "1s",
        "workloads": {"running_pods": "kept"},
    }
    played = clean_arena.play(changed(plan, "expect", expect))
    assert played.exit_code == 0, played.output
    measured = played.history.of(CanaryMeasured)
    before, during, after = [seen for seen in measured if seen.measure == "round-trip time"]
    assert [seen.phase for seen in (before, during, after)] == ["before", "during", "after"]
    assert during.value is not None
    assert during.value > 40
    assert after.peer == before.peer
    assert [checked.ok for checked in played.history.of(QaChecked) if checked.check == "canary"] == [True]
    assert played.verdicts()["canary"] == "held"
    reduced = [seen for seen in measured if seen.measure == "all-reduce over nodes"]
    assert [seen.phase for seen in reduced] == ["before", "during", "after"]
    assert len({seen.peers for seen in reduced}) == 1 and len({seen.bytes for seen in reduced}) == 1
    normal, slow, again = (seen.latency_ms or 0.0 for seen in reduced)
    assert slow > max(40, normal, again)  # a round waits once for what leaves the target
    assert min(normal, again) < 40  # the machine that plays the network may be busy during one of them
    assert played.verdicts()["all-reduce"] == "held"
    left = [pod.metadata.name for pod in clean_arena.core.list_pod_for_all_namespaces().items]
    assert not [name for name in left if "all-reduce" in name]


@pytest.mark.slow
def test_an_all_reduce_whose_peer_dies_is_unknown_with_the_reason_and_leaves_no_pod(clean_arena: Arena) -> None:
    fault = {"type": "net_tbf", "interface": "ib0", "rate_mbit": 1, "hold": "60s"}
    plan = changed(changed(QUICK, "fault", fault), "recover.remediation", "none")
    expect = {
        "all_reduce": {"interface": "ib0", "falls_below": "25%", "tolerance": BUSY},
        "stays_schedulable_for": "1s",
    }
    killed = threading.Thread(target=_kill_when_ready, args=(clean_arena, "-all-reduce-during-rank-1"))
    killed.start()
    played = clean_arena.play(changed(plan, "expect", expect))
    killed.join()
    assert played.exit_code == 2, played.output
    assert played.verdicts()["all-reduce"] == "unknown"
    before, during, after = played.history.of(CanaryMeasured)
    assert during.detail.startswith(f"peer {before.peers[0]} left the all-reduce after ")
    assert after.ok
    left = [pod.metadata.name for pod in clean_arena.core.list_pod_for_all_namespaces().items]
    assert not [name for name in left if "all-reduce" in name]


NCCL = {"backend": "nccl", "interface": "ib0", "falls_below": "2.5%", "tolerance": "50%"}
LIMIT = {"type": "net_tbf", "interface": "ib0", "rate_mbit": 10, "hold": "60s"}


@pytest.mark.gate
@pytest.mark.slow
def test_an_all_reduce_by_nccl_over_a_slow_interface_falls_and_comes_back(clean_arena: Arena) -> None:
    plan = changed(changed(QUICK, "fault", LIMIT), "recover.remediation", "none")
    plan = changed(plan, "expect", {"all_reduce": NCCL, "stays_schedulable_for": "1s"})
    played = clean_arena.play(patient(plan))
    assert played.exit_code == 0, played.output
    before, during, after = (seen.value or 0.0 for seen in played.history.of(CanaryMeasured))
    assert (before, during, after) == pytest.approx((3.0, 0.00125, 3.0), rel=0.05)
    assert "NCCL from GPU to GPU, sockets over ib0" in played.history.of(CanaryMeasured)[1].detail
    assert played.verdicts()["all-reduce"] == "held"
    assert [checked.ok for checked in played.history.of(QaChecked) if checked.check == "all-reduce"] == [True]
    left = [pod.metadata.name for pod in clean_arena.core.list_pod_for_all_namespaces().items]
    assert not [name for name in left if "all-reduce" in name]


@pytest.mark.slow
def test_without_its_fault_an_all_reduce_by_nccl_does_not_hold(clean_arena: Arena) -> None:
    plan = changed(changed(QUICK, "fault", {"type": "noop", "hold": "60s"}), "recover.remediation", "none")
    played = clean_arena.play(changed(plan, "expect", {"all_reduce": NCCL, "stays_schedulable_for": "1s"}))
    assert played.exit_code == 1, played.output
    assert played.verdicts()["all-reduce"] == "broken"


def _kill_when_ready(arena: Arena, ending: str) -> None:
    """Delete the pod whose name ends so, once it is Ready."""
    found: list[Any] = []

    def ready() -> bool:
        pods = arena.core.list_pod_for_all_namespaces(label_selector="gameday.dev/role=all-reduce").items
        found.extend(pod for pod in pods if pod.metadata.name.endswith(ending) and _is_ready(pod))
        return bool(found)

    until(ready, 120, "a rank to be Ready")
    pod = found[0]
    arena.core.delete_namespaced_pod(pod.metadata.name, pod.metadata.namespace, grace_period_seconds=0)


def _is_ready(pod: Any) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())


@contextmanager
def one_gpu_free(arena: Arena) -> Iterator[str]:
    """A node of which a pod of ours, beside the training that is there, leaves one GPU for the length of the block."""
    node, free = next((name, gpus) for name, gpus in arena.free_gpus().items() if gpus > 0)
    taken = free - 1
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
