"""Pods on virtual nodes under a real API server: deadlines, graceful ends, what the status says of it."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from gameday.cluster.manifests import agent_pod
from gameday.host.api_account import IN_CLUSTER_FOLDER
from gameday.host.privileges import KERNEL_LOG
from gameday_rehearsal.seed import seeding
from tests.guard.observations import profile
from tests.rehearsal.control_plane_rights import CANARY, CLIENT, answers, client_with, expected
from tests.rehearsal.lab.nodes import Fleet, Json, eventually
from tests.rehearsal.nodes.conftest import agent, simulated

pytestmark = pytest.mark.lab
XID = {"role": "inject", "gpu": 1, "fault": {"type": "xid", "xid": 79}, "hold_s": 60}


def terminated(pod: Json) -> Json:
    found: Json = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return found


def test_the_active_deadline_fails_the_pod_once_its_containers_have_ended(fleet: Fleet) -> None:
    fleet.apply(agent("late", "gpu-node-1", XID, activeDeadlineSeconds=10))
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


def test_pods_do_at_the_api_server_what_their_accounts_may_and_no_more(fleet: Fleet) -> None:
    """In the lab, because kubesim's own admission and authorizer would only prove themselves."""
    with seeding(fleet.plane.admin) as seeder:
        seeder.rights()
        seeder.control_plane_rights()
    for account in (CLIENT, CANARY):
        fleet.plane.kubectl("create", "-n", "gameday", "-f", "-", stdin=json.dumps(_pod_with(account)))
    try:
        files = {account: _account_files(fleet, account) for account in (CLIENT, CANARY)}
        for account, folder in files.items():
            with client_with(fleet.plane.url, folder / "ca.crt", folder / "token") as http:
                assert answers(http, account) == expected(account)
    finally:
        fleet.plane.kubectl("delete", "-n", "gameday", "pod", CLIENT, CANARY, "--timeout=55s")
        fleet.plane.kubectl("delete", "namespace", "gameday-load", "--timeout=55s")
    eventually(lambda: not any(folder.exists() for folder in files.values()), "the tokens gone with the pods")


def _pod_with(account: str) -> Json:
    return agent_pod(
        account,
        task=json.dumps({"run_id": "r", "node": "gpu-node-4", **XID}),
        role="inject",
        run_id="r",
        node="gpu-node-4",
        profile=profile(),
        deadline=timedelta(minutes=5),
        security=KERNEL_LOG,
        account=account,
    )


def _account_files(fleet: Fleet, account: str) -> Path:
    """Return the folder of the account's files once its pod is Ready, by the name that admission gave the volume."""
    fleet.plane.kubectl("wait", "-n", "gameday", f"pod/{account}", "--for=condition=Ready", "--timeout=55s")
    pod = fleet.get("-n", "gameday", "pod", account)
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    (volume,) = (each["name"] for each in mounts if each["mountPath"] == f"/{IN_CLUSTER_FOLDER}")
    return fleet.pods / pod["metadata"]["uid"] / "volumes" / volume
