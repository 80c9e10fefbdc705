"""The real Job controller over pods on virtual nodes: completion, failure, what a pod failure policy reads."""

from __future__ import annotations

import pytest

from tests.rehearsal.lab.nodes import Fleet, Json, eventually, work

pytestmark = pytest.mark.lab


def job(name: str, template: Json, **spec: object) -> Json:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


def ends(fleet: Fleet, name: str, condition: str) -> Json:
    """The Job once it has that condition."""
    fleet.plane.kubectl("wait", f"job/{name}", f"--for=condition={condition}", "--timeout=55s")
    return fleet.get("job", name)


def pods_of(fleet: Fleet, name: str) -> list[Json]:
    items: list[Json] = fleet.get("pods", "-l", f"job-name={name}")["items"]
    return items


def test_a_job_completes(fleet: Fleet) -> None:
    fleet.apply(job("good", work("sleep 1", gpus=1), completions=4, parallelism=2))
    assert ends(fleet, "good", "Complete")["status"]["succeeded"] == 4
    assert {pod["status"]["phase"] for pod in pods_of(fleet, "good")} == {"Succeeded"}
    fleet.plane.kubectl("delete", "job", "good")


def test_a_job_fails_at_its_back_off_limit(fleet: Fleet) -> None:
    fleet.apply(job("bad", work("sleep 1", exit_code=3), backoffLimit=1))
    failed = ends(fleet, "bad", "Failed")
    assert failed["status"]["conditions"][-1]["reason"] == "BackoffLimitExceeded"
    assert failed["status"]["failed"] == 2
    fleet.plane.kubectl("delete", "job", "bad")


def test_an_indexed_job_fails_and_succeeds_by_index(fleet: Fleet) -> None:
    fleet.apply(job("indexed", work("sleep 1"), completionMode="Indexed", completions=3, parallelism=3))
    assert ends(fleet, "indexed", "Complete")["status"]["completedIndexes"] == "0-2"
    fleet.plane.kubectl("delete", "job", "indexed")


def test_a_failure_policy_reads_the_exit_code(fleet: Fleet) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    fleet.apply(job("fatal", work("sleep 1", exit_code=42), backoffLimit=5, podFailurePolicy={"rules": [rule]}))
    failed = ends(fleet, "fatal", "Failed")
    assert failed["status"]["conditions"][-1]["reason"] == "PodFailurePolicy"
    assert failed["status"]["failed"] == 1
    fleet.plane.kubectl("delete", "job", "fatal")


def test_a_job_s_deadline_stops_its_pods(fleet: Fleet) -> None:
    fleet.apply(job("late", work(), activeDeadlineSeconds=2))
    failed = ends(fleet, "late", "Failed")
    assert failed["status"]["conditions"][-1]["reason"] == "DeadlineExceeded"
    eventually(lambda: not pods_of(fleet, "late"), "the pod stopped and gone")
    fleet.plane.kubectl("delete", "job", "late")


def test_a_taint_s_eviction_is_a_disruption_and_no_failure(fleet: Fleet) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    policy = {"rules": [rule]}
    fleet.apply(job("disrupted", work(gpus=1), backoffLimit=0, podFailurePolicy=policy))
    pod = eventually(
        lambda: (found := pods_of(fleet, "disrupted")) and found[0]["status"]["phase"] == "Running" and found[0],
        "its pod runs",
    )
    node = pod["spec"]["nodeName"]
    fleet.plane.kubectl("taint", "node", node, "gameday.dev/test=x:NoExecute")
    try:
        other = eventually(
            lambda: [
                p for p in pods_of(fleet, "disrupted") if p["spec"].get("nodeName") not in (None, node)
                and p["status"]["phase"] == "Running"
            ],
            "a new pod on another node",
        )  # fmt: skip
        assert other[0]["metadata"]["uid"] != pod["metadata"]["uid"]
        assert not fleet.get("job", "disrupted")["status"].get("failed")
    finally:
        fleet.plane.kubectl("taint", "node", node, "gameday.dev/test-")
        fleet.plane.kubectl("delete", "job", "disrupted")
