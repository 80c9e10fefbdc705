"""Whole game-days in which a training job meets a CUDA error: one that goes on, one that does not, and no library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client
from ruamel.yaml import YAML

from gameday import cli
from gameday.history.events import FaultInjected, JobStepSeen
from gameday.values.cuda_switch import ANNOTATION
from gameday_rehearsal.seed import CUDA_ERROR
from tests.game_days.conftest import QUICK, Arena, Played, changed
from tests.game_days.test_job_recovery import JOB, on_training_node
from tests.rehearsal.processes import until

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]


def plan_for(app: str) -> dict[str, Any]:
    fault = {
        "type": "cuda_error",
        "error": "ecc-uncorrectable",
        "namespace": "training",
        "selector": {"app": app},
        "hold": "60s",
    }
    job = JOB | {"selector": {"app": app}, "must_stop": True, "resumes_within": "20s"}
    plan = changed(changed(QUICK, "fault", fault), "recover.remediation", "none")
    return changed(plan, "expect", {"stays_schedulable_for": "2s", "allow_other_alerts": True, "job": job})


def annotated(arena: Arena) -> list[str]:
    pods = arena.core.list_namespaced_pod("training").items
    return [pod.metadata.name for pod in pods if ANNOTATION in (pod.metadata.annotations or {})]


@pytest.fixture
def fragile(clean_arena: Arena) -> Iterator[dict[str, Any]]:
    """A job that is over with the first pod of it that fails, with what deploy/cuda-error/pod-patch.yaml brings."""
    job = YAML(typ="safe", pure=True).load((CUDA_ERROR / "pod-patch.yaml").read_text(encoding="utf-8"))
    job |= {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "fragile"}}
    job["spec"] |= {"backoffLimit": 0}
    template = job["spec"]["template"]
    template["metadata"]["labels"]["app"] = "fragile"
    template["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2}
    template["spec"]["containers"][0] |= {"image": "trainer", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    yield job
    client.BatchV1Api(clean_arena.core.api_client).delete_namespaced_job(
        "fragile", "training", propagation_policy="Background"
    )
    until(
        lambda: not clean_arena.core.list_namespaced_pod("training", label_selector="app=fragile").items,
        60,
        "the job's pods are gone",
    )


def play_on(arena: Arena, job: dict[str, Any]) -> Played:
    """Start the job, and play a game-day on its node once it prints steps."""
    client.BatchV1Api(arena.core.api_client).create_namespaced_job("training", job)

    def node() -> str | None:
        for pod in arena.core.list_namespaced_pod("training", label_selector="app=fragile").items:
            if pod.status.phase == "Running" and "step " in arena.core.read_namespaced_pod_log(
                pod.metadata.name, "training"
            ):
                return str(pod.spec.node_name)
        return None

    until(lambda: node() is not None, 60, "a pod of the job that prints steps")
    return arena.play(changed(plan_for("fragile"), "targets.names", [node()]))


def test_a_job_that_restarts_itself_goes_on_from_its_checkpoint(clean_arena: Arena) -> None:
    # The job's back-off alone takes 10 s, and its output says so only every 5 s.
    plan = changed(plan_for("pretrain"), "expect.job.resumes_within", "90s")
    played = clean_arena.play(on_training_node(clean_arena, plan))
    assert played.exit_code == 0, played.output
    verdicts = played.verdicts()
    assert [verdicts[name] for name in ("job-stops", "job-resumes", "job-lost-steps")] == ["held"] * 3
    assert len({seen.uid for seen in played.history.of(JobStepSeen)}) > 1
    assert any("every CUDA call returns 214" in line for line in played.history.of(FaultInjected)[0].evidence)
    assert annotated(clean_arena) == []


def test_a_job_that_does_not_restart_itself_fails_the_game_day(clean_arena: Arena, fragile: dict[str, Any]) -> None:
    played = play_on(clean_arena, fragile)
    assert played.exit_code == 1, played.output
    assert (played.verdicts()["job-stops"], played.verdicts()["job-resumes"]) == ("held", "broken")
    assert annotated(clean_arena) == []


def test_a_job_whose_library_does_not_load_is_left_alone(clean_arena: Arena, fragile: dict[str, Any]) -> None:
    (trainer,) = fragile["spec"]["template"]["spec"]["containers"]
    trainer["volumeMounts"] = [mount for mount in trainer["volumeMounts"] if mount["name"] != "gameday-cuda"]
    played = play_on(clean_arena, fragile)
    assert played.exit_code not in (0, 1), played.output
    assert "could not load libgameday-cuda-error.so" in played.output
    assert not played.history.of(FaultInjected)
    pods = clean_arena.core.list_namespaced_pod("training", label_selector="app=fragile").items
    assert [pod.status.phase for pod in pods] == ["Running"]
    assert annotated(clean_arena) == []


@pytest.mark.parametrize(("app", "ok"), [("pretrain", True), ("nobody", False)])
def test_the_doctor_says_whether_a_target_runs_a_pod_that_may_fail(
    clean_arena: Arena, capsys: pytest.CaptureFixture[str], app: str, ok: bool
) -> None:
    plan = on_training_node(clean_arena, plan_for(app))
    (node,) = plan["targets"]["names"]
    file = clean_arena.folder / "cuda-error.yaml"
    file.write_text(json.dumps(plan))
    cli.run(["doctor", str(file), "--profile", str(clean_arena.cluster.profile), "--json"])
    rows = [row for row in json.loads(capsys.readouterr().out) if row["area"] == "workload"]
    assert {row["name"]: row["ok"] for row in rows} == {
        f"one pod of {node} may fail": ok,
        "the injector is admitted": True,
    }
    assert all(bool(row["fix"]) is not row["ok"] for row in rows)
