from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubesim.controllers.disruption import DELETION_TIMEOUT, expected_pods, next_step
from kubesim.controllers.lifecycle import silent_conditions, wanted_taints

from .builders import NOW, STAMP, leaving, node, pod, ready


def taint_set(each: Any) -> set[tuple[str, str]]:
    return {(taint["key"].removeprefix("node.kubernetes.io/"), taint["effect"]) for taint in wanted_taints(each)}


@pytest.mark.parametrize(
    ("status", "taints"),
    [
        ("True", set()),
        ("False", {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")}),
        ("Unknown", {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}),
        (None, {("not-ready", "NoSchedule")}),
    ],
)
def test_ready_condition_decides_the_taints(status: str | None, taints: set[tuple[str, str]]) -> None:
    assert taint_set(node("n1", ready=status)) == taints
    assert taint_set(node("n1", ready=status, unschedulable=True)) == taints | {("unschedulable", "NoSchedule")}


def test_pressure_taints() -> None:
    pressed = node("n1")
    pressed["status"]["conditions"].append({"type": "DiskPressure", "status": "True"})
    assert taint_set(pressed) == {("disk-pressure", "NoSchedule")}


def test_silent_node_keeps_foreign_conditions() -> None:
    silent = node("n1")
    silent["status"]["conditions"].append({"type": "GpuHealthy", "status": "True"})
    after = {c["type"]: c for c in silent_conditions(silent, NOW)}
    assert after["GpuHealthy"]["status"] == "True"
    assert (after["Ready"]["status"], after["Ready"]["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert after["DiskPressure"]["reason"] == "NodeStatusNeverUpdated"


def budget(status: Any = None, **spec: Any) -> Any:
    return {"metadata": {"name": "b", "namespace": "default", "generation": 3}, "spec": spec, "status": status or {}}


@pytest.mark.parametrize(
    ("spec", "desired", "allowed"),
    [
        ({"minAvailable": 3}, 3, 1),
        ({"minAvailable": "50%"}, 2, 2),
        ({"maxUnavailable": 1}, 3, 1),
        ({"maxUnavailable": "30%"}, 2, 2),
        ({"minAvailable": "100%"}, 4, 0),
    ],
)
def test_budget_arithmetic(spec: Any, desired: int, allowed: int) -> None:
    pods = [ready(pod(f"p{i}")) for i in range(4)]
    status = next_step(budget(**spec), pods, 4, NOW).status
    assert (status["desiredHealthy"], status["disruptionsAllowed"], status["currentHealthy"]) == (desired, allowed, 4)
    assert (status["expectedPods"], status["observedGeneration"]) == (4, 3)


def test_budget_counts_only_pods_that_stay() -> None:
    pods = [ready(pod("a")), ready(pod("b"), "False"), leaving(ready(pod("c"))), ready(pod("d"))]
    granted = budget({"disruptedPods": {"d": STAMP, "gone": STAMP}}, minAvailable=1)
    step = next_step(granted, pods, 4, NOW)
    assert (step.status["currentHealthy"], step.status["disruptionsAllowed"]) == (1, 0)
    assert step.status["disruptedPods"] == {"d": STAMP}
    assert step.requeue_at == NOW + DELETION_TIMEOUT
    forgotten = next_step(granted, pods, 4, NOW + DELETION_TIMEOUT + timedelta(seconds=1))
    assert forgotten.status["currentHealthy"] == 2
    assert "disruptedPods" not in forgotten.status


def test_expected_pods_come_from_the_owners() -> None:
    owned = pod("a")
    owned["metadata"]["ownerReferences"] = [{"uid": "j", "kind": "Job", "name": "j", "controller": True}]
    pods = [owned, pod("bare")]
    assert expected_pods({"maxUnavailable": 1}, pods, lambda _: 8) == 9
    assert expected_pods({"maxUnavailable": 1}, pods, lambda _: None) == 2
    assert expected_pods({"minAvailable": 1}, pods, lambda _: 8) == 2
