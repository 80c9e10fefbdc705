"""Whole game-days on a node whose every GPU is in use, beside a node that carries a taint of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gameday.history.events import WorkloadSeen
from tests.game_days.conftest import QUICK, Arena, changed

pytestmark = [pytest.mark.slow, pytest.mark.gameday, pytest.mark.timeout(400)]
TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
NAMESPACE = "training"


def pod(name: str, node: str) -> dict[str, Any]:
    container = {"name": "gpu", "image": "busy", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container]}}


@pytest.fixture
def busy(clean_arena: Arena) -> Iterator[str]:
    """A node that is full; the others carry a taint that the canary does not tolerate."""
    first, *others = sorted(clean_arena.nodes())
    core = clean_arena.core
    names = [f"busy-{number}" for number in range(clean_arena.free_gpus()[first])]
    for name in names:
        core.create_namespaced_pod(NAMESPACE, pod(name, first))
    for other in others:
        core.patch_node(other, {"spec": {"taints": [TAINT]}})
    clean_arena.settle()
    assert clean_arena.free_gpus()[first] == 0
    yield first
    for other in others:
        core.patch_node(other, {"spec": {"taints": None}})
    for name in names:
        core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)


def test_a_node_that_was_never_out_of_service_is_at_work_though_full(clean_arena: Arena, busy: str) -> None:
    """The scheduler's word counts that is about this node: the others' taint says nothing of it."""
    plan = changed(changed(QUICK, "fault", {"type": "xid", "xid": 13, "hold": "5s"}), "targets", {"names": [busy]})
    plan = changed(
        changed(plan, "expect", {"stays_schedulable_for": "1s", "allow_other_alerts": True}),
        "recover.remediation",
        "none",
    )
    played = clean_arena.play(plan)
    assert played.exit_code == 0, played.output
    (seen,) = [event for event in played.history.of(WorkloadSeen) if event.purpose == "return"]
    assert (seen.node, seen.ok) == (busy, True)
    assert "hold every GPU" in seen.detail
