"""Whole game-days that measure how a training job gets over them."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.history.events import JobStepSeen, Problem
from tests.game_days.conftest import PATIENCE_S, QUICK, Arena, changed, patient
from tests.rehearsal.processes import until

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(1800)]

JOB = {"namespace": "training", "selector": {"app": "pretrain"}, "resumes_within": "90s", "lost_steps_at_most": 1000}


def on_training_node(arena: Arena, plan: dict[str, Any]) -> dict[str, Any]:
    """The plan with a target on which one pod of the job runs alone, and has printed two steps."""

    def placed() -> list[Any]:
        pods = arena.core.list_namespaced_pod("training", label_selector="app=pretrain").items
        return [pod for pod in pods if pod.spec.node_name and pod.status.phase not in ("Failed", "Succeeded")]

    def printing() -> str | None:
        pods = placed()
        for pod in pods:
            is_alone = [one.spec.node_name for one in pods].count(pod.spec.node_name) == 1
            if is_alone and pod.status.phase == "Running" and not pod.metadata.deletion_timestamp:
                log = arena.core.read_namespaced_pod_log(pod.metadata.name, "training", tail_lines=2)
                if log.count("step") == 2:
                    return str(pod.spec.node_name)
        return None

    def is_there() -> bool:
        """Earlier game-days may have left the job two to a node: then one of them goes, and starts elsewhere."""
        if printing() is not None:
            return True
        pods = placed()
        settled = all(pod.status.phase == "Running" and not pod.metadata.deletion_timestamp for pod in pods)
        places = [pod.spec.node_name for pod in pods]
        if pods and settled and all(places.count(place) > 1 for place in places):
            arena.core.delete_namespaced_pod(pods[0].metadata.name, "training")
        return False

    until(is_there, PATIENCE_S, "a training pod that has printed two steps")
    return changed(plan, "targets.names", [printing()])


def gpus_of_the_job(arena: Arena, node: str) -> tuple[list[int], list[int]]:
    """The GPUs of the job's only pod on a node, and the others: they depend on whose pods were there when it came."""
    pods = arena.core.list_namespaced_pod(
        "training", label_selector="app=pretrain", field_selector=f"spec.nodeName={node},status.phase=Running"
    )
    (uid,) = (pod.metadata.uid for pod in pods.items)
    host = arena.hosts()[node]
    found: tuple[list[int], list[int]] = [], []
    for gpu in host.gpus():
        found[uid not in {user.pod for user in host.gpu_users(gpu.index)}].append(gpu.index)
    return found


@pytest.mark.gate
def test_a_drained_job_resumes_from_its_checkpoint_and_repeats_some_steps(clean_arena: Arena) -> None:
    plan = patient(changed(QUICK, "expect.job", JOB | {"must_stop": True}))
    played = clean_arena.play(on_training_node(clean_arena, plan))
    assert played.exit_code == 0, played.output
    verdicts = played.verdicts()
    assert {name: verdicts[name] for name in ("job-stops", "job-resumes", "job-lost-steps")} == {
        "job-stops": "held",
        "job-resumes": "held",
        "job-lost-steps": "held",
    }
    assert len({seen.uid for seen in played.history.of(JobStepSeen)}) > 1


def test_a_slow_gpu_slows_its_job_and_a_fault_that_slows_nothing_is_found_out(clean_arena: Arena) -> None:
    job = {"namespace": "training", "selector": {"app": "pretrain"}, "slows_below": "80%", "resumes_within": "30s"}
    plan = on_training_node(clean_arena, changed(QUICK, "recover.remediation", "none"))
    (used, *_), (other, *_) = gpus_of_the_job(clean_arena, plan["targets"]["names"][0])
    plan = changed(plan, "fault", {"type": "clock_lock", "gpu": used, "sm_clock_mhz": 1200, "hold": "60s"})
    # The training prints every 5 s: three lines under the fault.
    plan = changed(plan, "expect", {"stays_schedulable_for": "16s", "allow_other_alerts": True, "job": job})
    played = clean_arena.play(plan)
    assert played.exit_code == 0, played.output
    assert {name: played.verdicts()[name] for name in ("job-slows", "job-resumes")} == {
        "job-slows": "held",
        "job-resumes": "held",
    }
    assert not any("expect.job" in problem.what for problem in played.history.of(Problem))
    played = clean_arena.play(changed(changed(plan, "fault.gpu", other), "name", "control"))
    assert (played.exit_code, played.verdicts()["job-slows"]) == (1, "broken"), played.output
    (problem,) = (found for found in played.history.of(Problem) if "expect.job" in found.what)
    assert (f"the fault goes to GPU {other}" in problem.what, problem.hint) == (True, f"fault.gpu: {used} in the plan")
