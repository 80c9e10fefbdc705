"""Whole game-days in which the target's Topology Manager has to reject a pod."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from ruamel.yaml import YAML

from gameday.history.events import FaultUndone, IntentRecorded, TargetsChosen, WorkloadSeen
from gameday_rehearsal.nodes.numa import POLICY_ANNOTATION
from tests.game_days.conftest import QUICK, Arena, Played, changed
from tests.game_days.test_guarded_runs import command

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]


# More CPUs than one virtual NUMA node has, and the one GPU that is free on an arena's node.
EXPECT = {"topology_manager_rejects": {"gpus": 1, "cpus": 113}, "stays_schedulable_for": "1s"}
FAR = changed(changed(QUICK, "fault", {"type": "numa", "hold": "60s"}), "recover.remediation", "none")
PLAN = changed(FAR, "expect", EXPECT)


def pod_of(played: Played) -> WorkloadSeen:
    (seen,) = [event for event in played.history.of(WorkloadSeen) if event.purpose == "misaligned"]
    return seen


@pytest.fixture
def aligning(clean_arena: Arena) -> Iterator[Arena]:
    def annotate(policy: str | None) -> None:
        for node in clean_arena.nodes():
            clean_arena.core.patch_node(node, {"metadata": {"annotations": {POLICY_ANNOTATION: policy}}})

    annotate("single-numa-node")
    yield clean_arena
    annotate(None)


def test_a_node_with_the_policy_rejects_the_pod_which_is_gone_afterwards(aligning: Arena) -> None:
    played = aligning.play(PLAN)
    assert played.exit_code == 0, played.output
    seen, chosen = pod_of(played), played.history.last(TargetsChosen)
    assert chosen is not None
    assert (seen.phase, seen.node, seen.ok) == ("Failed", chosen.targets[0].node, True)
    assert played.verdicts()["workload-misaligned"] == "held"
    assert "misaligned-0" in [event.intent for event in played.history.of(IntentRecorded)]
    assert "misaligned-0" in [event.intent for event in played.history.of(FaultUndone)]
    assert aligning.leftovers() == []


def test_a_dry_run_lists_the_pod(clean_arena: Arena) -> None:
    code, said = command(clean_arena, PLAN, "run", "--dry-run")
    assert code == 0, said
    assert re.search(r"^# verify taint: create pod/\S+-misaligned", said, re.MULTILINE), said
    pods = [one for one in YAML(typ="safe", pure=True).load_all(said) if one and one["kind"] == "Pod"]
    (pod,) = [one for one in pods if one["metadata"]["name"].endswith("-misaligned")]
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"] == {"nvidia.com/gpu": "1", "cpu": "113", "memory": "16Mi"}


def test_a_node_without_it_runs_the_pod_and_breaks_the_plan(clean_arena: Arena) -> None:
    played = clean_arena.play(PLAN)
    assert played.exit_code == 1, played.output
    assert pod_of(played).phase == "Running"
    assert played.verdicts()["workload-misaligned"] == "broken"
    assert clean_arena.leftovers() == []
