from __future__ import annotations

from typing import Any

import pytest

from kubesim.controllers.daemonsets import next_step, pod_for, share, target_node

from .builders import node, pod, ready

FAULTY = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}


def daemonset(image: str = "v1", **spec: Any) -> Any:
    template = {
        "metadata": {"labels": {"app": "dmesg"}},
        "spec": {"containers": [{"name": "c", "image": image}], **spec},
    }
    return {
        "metadata": {"name": "dmesg", "namespace": "default", "uid": "uid-dmesg", "generation": 1},
        "spec": {"template": template},
        "status": {},
    }


def running(owner: Any, where: str, phase: str = "Running") -> Any:
    made = pod(f"dmesg-{where}", phase=phase, nodeName=where)
    made["metadata"]["labels"] = pod_for(owner, where)["metadata"]["labels"]
    return ready(made) if phase == "Running" else made


def test_a_pod_per_matching_node_cordoned_ones_too() -> None:
    nodes = [
        node("n1", labels={"gpu": "true"}),
        node("n2", labels={"gpu": "true"}, unschedulable=True),
        node("n3"),
        node("n4", labels={"gpu": "true"}, taints=[FAULTY]),
    ]
    owner = daemonset(nodeSelector={"gpu": "true"})
    step = next_step(owner, [running(owner, "n1")], nodes)
    assert step.create_on == ["n2"]
    assert step.status["desiredNumberScheduled"] == 2
    assert (step.status["numberReady"], step.status["numberUnavailable"]) == (1, 1)


def test_new_pod_is_pinned_and_tolerates_the_nodes_troubles() -> None:
    made = pod_for(daemonset(), "n7")
    assert target_node(made) == "n7"
    keys = {t["key"] for t in made["spec"]["tolerations"]}
    assert {"node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable"} <= keys


def test_a_waiting_pod_is_not_created_twice() -> None:
    owner = daemonset()
    waiting = {**pod_for(owner, "n1"), "status": {"phase": "Pending"}}
    waiting["metadata"] |= {"name": "dmesg-x", "uid": "u"}
    assert next_step(owner, [waiting], [node("n1")]).create_on == []


def test_no_schedule_taint_keeps_a_running_pod_and_no_execute_ends_it() -> None:
    owner = daemonset()
    here = running(owner, "n1")
    kept = next_step(owner, [here], [node("n1", taints=[FAULTY])])
    assert (kept.delete, kept.status["numberMisscheduled"]) == ([], 1)
    ended = next_step(owner, [here], [node("n1", taints=[{**FAULTY, "effect": "NoExecute"}])])
    assert ended.delete == [here]


def test_failed_pod_is_deleted_first_then_replaced() -> None:
    owner = daemonset()
    broken = running(owner, "n1", phase="Failed")
    step = next_step(owner, [broken], [node("n1")])
    assert (step.failed, step.create_on) == ([broken], [])
    assert next_step(owner, [], [node("n1")]).create_on == ["n1"]


def test_rolling_update_stays_within_max_unavailable() -> None:
    old, new = daemonset("v1"), daemonset("v2")
    nodes = [node(f"n{i}") for i in range(3)]
    pods = [running(old, f"n{i}") for i in range(3)]
    step = next_step(new, pods, nodes)
    assert step.delete == [pods[0]]
    pods[0] = {**pods[0], "status": {"phase": "Running"}}
    assert next_step(new, pods, nodes).delete == [pods[0]], "a broken old pod goes, no healthy one beside it"
    replaced = [ready(running(new, "n0")), *pods[1:]]
    assert next_step(new, replaced, nodes).delete == [pods[1]]
    new["spec"]["updateStrategy"] = {"type": "OnDelete"}
    assert next_step(new, replaced, nodes).delete == []


@pytest.mark.parametrize(("value", "whole", "expected"), [(2, 10, 2), ("25%", 10, 3), ("0%", 10, 0), ("100%", 7, 7)])
def test_share(value: int | str, whole: int, expected: int) -> None:
    assert share(value, whole) == expected
