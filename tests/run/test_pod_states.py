"""Two watches of one pod, noted in any order: each change once, and no phase that goes back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.client import (
    V1Container,
    V1ObjectMeta,
    V1Pod,
    V1PodCondition,
    V1PodSpec,
    V1PodStatus,
    V1ResourceRequirements,
)

from gameday.cluster.list_watch import ADDED, DELETED, MODIFIED
from gameday.cluster.pods import PodSeen, pod_seen
from gameday.run.pod_states import PodStates


def pod(phase: str, node: str | None = "n1", uid: str = "u1", gpus: int = 2) -> V1Pod:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = V1Container(name="c", resources=V1ResourceRequirements(limits=limits))
    return V1Pod(
        metadata=V1ObjectMeta(name=f"pod-{uid}", namespace="training", uid=uid, labels={}),
        spec=V1PodSpec(node_name=node, containers=[container]),
        status=V1PodStatus(phase=phase),
    )


def seen(phase: str, node: str | None = "n1", *, gone: bool = False) -> PodSeen:
    return pod_seen(pod(phase, node), gone=gone)


def frame_rows(states: PodStates) -> list[tuple[Any, ...]]:
    return [(row["node"], row["phase"], row["gpus"]) for row in states.rows()]


def test_every_change_of_phase_is_one_row_and_a_heartbeat_is_none():
    states = PodStates()
    for kind, phase in ((ADDED, "Pending"), (MODIFIED, "Running"), (MODIFIED, "Running"), (DELETED, "Running")):
        states.add_target_pod(kind, pod(phase))
    assert frame_rows(states) == [("n1", "Pending", 2), ("n1", "Running", 2), ("n1", "Deleted", 2)]


def test_the_slower_watch_adds_nothing():
    states = PodStates()
    states.add_target_pod(ADDED, pod("Running"))
    states.add_own_pod("training", seen("Pending", None))
    states.add_own_pod("training", seen("Pending"))
    states.add_target_pod(DELETED, pod("Running"))
    states.add_own_pod("training", seen("Running"))
    states.add_own_pod("training", seen("Running", gone=True))
    assert frame_rows(states) == [("n1", "Running", 2), ("n1", "Deleted", 2)]


def test_a_pod_that_waits_to_be_scheduled_has_no_node_until_it_is():
    states = PodStates()
    states.add_own_pod("training", seen("Pending", None))
    states.add_own_pod("training", seen("Pending"))
    assert [row["node"] for row in states.rows()] == ["", "n1"]


def test_a_pod_of_the_same_name_again_is_another_pod():
    states = PodStates()
    states.add_target_pod(DELETED, pod("Running"))
    again = pod("Pending", uid="u2")
    again.metadata.name = "pod-u1"
    states.add_target_pod(ADDED, again)
    assert [row["phase"] for row in states.rows()] == ["Deleted", "Pending"]


def test_a_pod_without_a_status_yet_is_unknown_and_not_running():
    states = PodStates()
    bare = pod("Running")
    bare.status = None
    states.add_target_pod(ADDED, bare)
    assert [row["phase"] for row in states.rows()] == ["Unknown"]


def with_end(phase: str, *, deleted: bool = False, disrupted: str = "") -> V1Pod:
    found = pod(phase)
    found.metadata.deletion_timestamp = datetime.now(UTC) if deleted else None
    if disrupted:
        found.status.conditions = [V1PodCondition(type="DisruptionTarget", status="True", reason=disrupted)]
    return found


@pytest.mark.parametrize(
    ("watched", "kept", "off", "words"),
    [
        ([(ADDED, with_end("Running"))], True, False, "kept"),
        (
            [(ADDED, with_end("Succeeded")), (DELETED, with_end("Succeeded", deleted=True))],
            False,
            True,
            "ended by itself",
        ),
        ([(ADDED, with_end("Succeeded", deleted=True))], False, True, "deleted"),
        ([(ADDED, with_end("Failed"))], False, True, "failed"),
        ([(ADDED, with_end("Running", deleted=True))], False, False, "deleted, and still ending"),
        (
            [(ADDED, with_end("Running", deleted=True, disrupted="DeletionByTaintManager"))],
            False,
            False,
            "disrupted: DeletionByTaintManager, and still ending",
        ),
        (
            [(DELETED, with_end("Succeeded", deleted=True, disrupted="EvictionByEvictionAPI"))],
            False,
            True,
            "disrupted: EvictionByEvictionAPI",
        ),
    ],
    ids=["runs", "done-and-tidied", "deleted-exits-0", "failed", "deleted", "tainted", "evicted"],
)
def test_the_fate_of_a_pod_is_how_it_came_to_its_end(
    watched: list[tuple[str, V1Pod]], kept: bool, off: bool, words: str
) -> None:
    states = PodStates()
    for kind, found in watched:
        states.add_target_pod(kind, found)
    fate = states.fate("u1")
    assert (fate.is_kept, fate.has_left, fate.description) == (kept, off, words)
