"""Whole game-days that must break: what nothing brings about, and what must not happen and does.

A verdict that no rehearsal can break would pass by construction. Each of these game-days breaks several at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.game_days.conftest import QUICK, Arena, changed, patient
from tests.game_days.test_job_recovery import on_training_node

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(1800)]

SOON = {"within": "6s"}
NEVER: dict[str, Any] = {
    "alerts": [{"name": "GPUXidCritical", "resolves_within": "5s", **SOON}],
    "taints": [{"key": "trainy.konduktor.ai/faulty", "value": "true", **SOON}],
    "cordoned": SOON,
    "conditions": [{"type": "GPUXidFault", "status": "True", **SOON}],
    "labels": [{"key": "example.com/faulty", **SOON}],
    "events": [{"reason": "GPUXid95", **SOON}],
    "allocatable_falls": SOON,
    "canary": {"measure": "copy to the GPU", "falls_below": "50%"},
    "probes": [{"name": "counted", "promql": {"query": "vector(0)", "at_least": 1}, **SOON, "timeout": "60s"}],
    "job": {
        "namespace": "training",
        "selector": {"app": "pretrain"},
        "must_stop": True,
        "slows_below": "50%",
        "resumes_within": "10s",
    },
    "workloads": {"running_pods": "evicted", "canary_kept_off_for": "1s", "resubmitted_within": "30s"},
    "allow_other_alerts": True,
}
"""Expectations that a fault which does nothing fulfils not one of."""


def without_repair(fault: dict[str, Any]) -> dict[str, Any]:
    return changed(changed(patient(QUICK), "fault", {"hold": "5m", **fault}), "recover.remediation", "none")


@pytest.fixture
def used_arena(arena: Arena) -> Iterator[Arena]:
    """An arena whose nodes a game-day may leave out of service, as it should."""
    arena.settle()
    yield arena
    arena.heal()


@pytest.mark.gate
def test_a_fault_that_does_nothing_breaks_every_expectation(clean_arena: Arena) -> None:
    plan = changed(without_repair({"type": "noop"}), "expect", NEVER)
    played = clean_arena.play(on_training_node(clean_arena, plan))
    assert played.exit_code == 1, played.output
    assert played.broken() == {
        "alert-fires",
        "taint-set",
        "cordoned",
        "condition-set",
        "label-set",
        "event-written",
        "allocatable-falls",
        "canary",
        "probe-holds",
        "job-stops",
        "job-slows",
        "workload-running",
    }


def test_a_second_fault_that_keeps_the_gpu_open_breaks_the_repair(used_arena: Arena) -> None:
    plan = changed(QUICK, "recover.fault_during", {"type": "gpu_memory", "leave_mib": 1024, "hold": "60s"})
    plan = changed(plan, "guardrails.allow_dangerous", ["gpu_memory"])
    played = used_arena.play(plan)
    assert played.broken() == {
        "alert-resolves",
        "fault-during-recovery",
        "node-as-before",
        "qa",
        "remediation",
        "undo-proof",
    }
