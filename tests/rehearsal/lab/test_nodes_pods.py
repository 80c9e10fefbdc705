"""Pods on virtual nodes under a real API server: deadlines, graceful ends, what the status says of it."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.rehearsal.lab.nodes import Fleet, Json
from tests.rehearsal.nodes.conftest import agent, simulated

pytestmark = pytest.mark.lab
XID = {"role": "inject", "gpu": 1, "fault": {"type": "xid", "xid": 79}, "hold_s": 60}


def terminated(pod: Json) -> Json:
    found: Json = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return found


def test_the_active_deadline_fails_the_pod_once_its_containers_have_ended(fleet: Fleet) -> None:
    fleet.apply(agent("late", "gpu-node-1", XID, activeDeadlineSeconds=5))
    status = fleet.phase("late", "Failed")
    assert status["status"]["reason"] == "DeadlineExceeded"
    assert json.loads(terminated(status)["message"])["ended_by"] == "sigterm"
    fleet.remove("late")


def test_a_deadline_that_comes_later_holds_and_its_generation_is_observed(fleet: Fleet) -> None:
    fleet.apply(simulated("hurried", "gpu-node-1"))
    status = fleet.phase("hurried", "Running")["status"]
    assert status["observedGeneration"] == 1
    assert {condition["observedGeneration"] for condition in status["conditions"]} == {1}
    fleet.plane.kubectl("patch", "pod", "hurried", "-p", '{"spec":{"activeDeadlineSeconds":1}}')
    failed = fleet.phase("hurried", "Failed")["status"]
    assert (failed["reason"], failed["observedGeneration"]) == ("DeadlineExceeded", 2)
    fleet.remove("hurried")


def test_a_deleted_pod_ends_in_its_grace_period_and_reports_how(fleet: Fleet) -> None:
    fleet.apply(agent("inject", "gpu-node-2", XID))
    fleet.plane.kubectl("wait", "pod/inject", "--for=condition=Ready", "--timeout=55s")
    argv = ["kubectl", "get", "pod", "inject", "--watch", "-o", "json", "--output-watch-events"]
    env = {**os.environ, "KUBECONFIG": str(fleet.plane.admin)}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            events = map(json.loads, watching.stdout)  # a line for each
            next(events)  # the watch is under way
            fleet.remove("inject")
            # Another kubectl saw the end; this one may print it a moment later.
            last = next(event["object"] for event in events if event["type"] == "DELETED")
        finally:
            watching.terminate()
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0
    assert json.loads(terminated(last)["message"])["ended_by"] == "sigterm"


def test_readiness_follows_the_probe(fleet: Fleet) -> None:
    fleet.apply(agent("probed", "gpu-node-3", XID))
    fleet.plane.kubectl("wait", "pod/probed", "--for=condition=Ready", "--timeout=55s")
    ready = fleet.conditions("pod", "probed")
    assert ready["ContainersReady"]["status"] == ready["PodReadyToStartContainers"]["status"] == "True"
    fleet.remove("probed")
