"""Whole game-days that must break: what nothing brings about, and what must not happen and does.

A verdict that no rehearsal can break would pass by construction. Each of these game-days breaks several at once.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from gameday.history.events import FaultInjected, Record
from gameday.values.results import Step
from tests.game_days.conftest import QUICK, Arena, Played, changed, step_started
from tests.game_days.test_job_recovery import on_training_node

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]

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
    "probes": [{"name": "counted", "promql": {"query": "vector(0)", "at_least": 1}, **SOON, "every": "1s"}],
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


def broken(played: Played) -> set[str]:
    print(played.output)
    return {check for check, status in played.verdicts().items() if status == "broken"}


def without_repair(fault: dict[str, Any]) -> dict[str, Any]:
    return changed(changed(QUICK, "fault", {"hold": "60s", **fault}), "recover.remediation", "none")


def fault_is_in(record: Record) -> bool:
    return isinstance(record.event, FaultInjected)


@pytest.fixture
def used_arena(arena: Arena) -> Iterator[Arena]:
    """An arena whose nodes a game-day may leave out of service, as it should."""
    arena.settle()
    yield arena
    arena.heal()


def test_a_fault_that_does_nothing_breaks_every_expectation(clean_arena: Arena) -> None:
    plan = changed(without_repair({"type": "noop"}), "expect", NEVER)
    played = clean_arena.play(on_training_node(clean_arena, plan))
    assert played.exit_code == 1, played.output
    assert broken(played) == {
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


def test_a_fault_that_is_said_to_do_nothing_breaks_what_must_stay(clean_arena: Arena) -> None:
    firing = 'count(ALERTS{alertname="GPUXidCritical",alertstate="firing",node=~"$targets"}) or vector(0)'
    quiet = {"name": "quiet", "promql": {"query": firing, "at_most": 0}, "every": "1s"}
    expect = {
        "alerts": [{"name": "GPUXidCritical", "within": "20s", "resolves_within": "0s"}],
        "stays_schedulable_for": "10s",
        "probes": [quiet | {"stays_for": "15s"}, quiet | {"name": "quiet-again", "returns_within": "0.1s"}],
        "job": {
            "namespace": "training",
            "selector": {"app": "pretrain"},
            "must_stop": True,
            "resumes_within": "1s",
        },
    }
    played = clean_arena.play(on_training_node(clean_arena, changed(QUICK, "expect", expect)))
    assert broken(played) == {"alert-resolves", "job-resumes", "probe-returns", "probe-stays", "stays-schedulable"}


def test_a_quarantine_that_keeps_nobody_off_and_marks_that_stay(clean_arena: Arena) -> None:
    """The test plays a poor detector: a taint that only prefers, and a condition that nobody takes back."""
    # The canary that comes in spite of the taint needs a GPU.
    node = next(name for name, free in clean_arena.free_gpus().items() if free)
    plan = changed(without_repair({"type": "noop"}), "targets.names", [node])
    taint = {"key": "example.com/soft", "value": "true", "effect": "PreferNoSchedule"}
    condition = {"type": "ExampleFault", "status": "True", "within": "20s", "clears_within": "1s"}
    expect = {
        "taints": [taint | {"within": "20s"}],
        "conditions": [condition],
        "workloads": {"canary_kept_off_for": "1s", "resubmitted_within": "30s"},
        "allow_other_alerts": True,
    }

    def mark(_: subprocess.Popen[str]) -> None:
        clean_arena.core.patch_node(node, {"spec": {"taints": [taint]}})
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        reported = {"type": "ExampleFault", "status": "True", "lastTransitionTime": now, "reason": "Example"}
        clean_arena.core.patch_node_status(node, {"status": {"conditions": [reported]}})

    played = clean_arena.play_and_when(changed(plan, "expect", expect), fault_is_in, mark)
    assert broken(played) == {"condition-clears", "node-as-before", "workload-canary"}


def test_where_no_node_takes_work_and_the_target_neither(used_arena: Arena) -> None:
    """Others' taints keep new work off every node, and off the target from QA on; and no alert was expected."""
    node, *others = sorted(used_arena.nodes())
    closed = {"key": "example.com/closed", "effect": "NoSchedule"}
    for other in others:
        used_arena.core.patch_node(other, {"spec": {"taints": [closed]}})
    plan = changed(changed(QUICK, "targets.names", [node]), "expect.alerts", [])
    plan = changed(plan, "expect.workloads.resubmitted_within", "3s")

    def close(_: subprocess.Popen[str]) -> None:
        taints = used_arena.core.read_node(node).spec.taints or []
        kept = [used_arena.core.api_client.sanitize_for_serialization(one) for one in taints]
        used_arena.core.patch_node(node, {"spec": {"taints": [*kept, closed]}})

    played = used_arena.play_and_when(plan, step_started(Step.QA_NODE), close)
    assert broken(played) == {"no-other-alerts", "node-as-before", "workload-resubmitted", "workload-return"}


def test_a_node_that_fails_qa_stays_out(used_arena: Arena) -> None:
    plan = changed(QUICK, "qa", {"within": "30s", "burn_in": "2s", "floors": {"gemm_tflops": 5000}})
    plan = changed(plan, "expect.alerts", [])
    plan = changed(changed(plan, "expect.allow_other_alerts", True), "expect.forbidden_severities", ["critical"])
    played = used_arena.play(plan)
    assert broken(played) == {"forbidden-severities", "node-as-before", "qa", "undo-proof"}


def test_a_second_fault_that_keeps_the_gpu_open_breaks_the_repair(used_arena: Arena) -> None:
    plan = changed(QUICK, "recover.fault_during", {"type": "gpu_memory", "leave_mib": 1024, "hold": "60s"})
    plan = changed(plan, "guardrails.allow_dangerous", ["gpu_memory"])
    played = used_arena.play(plan)
    assert broken(played) == {
        "alert-resolves",
        "fault-during-recovery",
        "node-as-before",
        "qa",
        "remediation",
        "undo-proof",
    }
