"""The real DaemonSet, Deployment, disruption and taint-eviction controllers over virtual nodes."""

from __future__ import annotations

import pytest

from tests.rehearsal.lab.nodes import NODES, Fleet, Json, eventually, work
from tests.rehearsal.nodes.conftest import simulated

pytestmark = pytest.mark.lab


def workload(kind: str, name: str, **spec: object) -> Json:
    labels = {"app": name}
    template = work()
    template["metadata"]["labels"] = labels
    template["spec"]["restartPolicy"] = "Always"
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


def running(fleet: Fleet, name: str) -> list[Json]:
    pods = fleet.get("pods", "-l", f"app={name}")["items"]
    return [p for p in pods if p["status"]["phase"] == "Running" and "deletionTimestamp" not in p["metadata"]]


def rolled_out(fleet: Fleet, what: str) -> None:
    fleet.plane.kubectl("rollout", "status", what, "--timeout=55s")


def test_a_daemon_set_rolls_out_and_is_updated(fleet: Fleet) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}
    fleet.apply(workload("DaemonSet", "agents", updateStrategy=strategy))
    rolled_out(fleet, "daemonset/agents")
    assert len({pod["spec"]["nodeName"] for pod in running(fleet, "agents")}) == NODES
    fleet.plane.kubectl("set", "image", "daemonset/agents", "main=registry.example/train:2")
    rolled_out(fleet, "daemonset/agents")
    assert {p["spec"]["containers"][0]["image"] for p in running(fleet, "agents")} == {"registry.example/train:2"}
    fleet.plane.kubectl("delete", "daemonset", "agents")


def test_a_deployment_rolls_out_and_is_updated(fleet: Fleet) -> None:
    fleet.apply(workload("Deployment", "server", replicas=4))
    rolled_out(fleet, "deployment/server")
    assert len(running(fleet, "server")) == 4
    fleet.plane.kubectl("set", "image", "deployment/server", "main=registry.example/train:2")
    rolled_out(fleet, "deployment/server")
    images = {p["spec"]["containers"][0]["image"] for p in running(fleet, "server")}
    assert images == {"registry.example/train:2"}
    fleet.plane.kubectl("delete", "deployment", "server")


def test_a_drain_waits_for_the_disruption_budget(fleet: Fleet) -> None:
    fleet.apply(workload("Deployment", "guarded", replicas=2))
    rolled_out(fleet, "deployment/guarded")
    fleet.plane.kubectl("create", "pdb", "guarded", "--selector=app=guarded", "--min-available=2")
    eventually(lambda: fleet.get("pdb", "guarded")["status"].get("currentHealthy") == 2, "the budget counted")
    node = running(fleet, "guarded")[0]["spec"]["nodeName"]
    drain = ("drain", node, "--ignore-daemonsets", "--force", "--delete-emptydir-data")
    try:
        assert "disruption budget" in fleet.refused(*drain, "--timeout=4s")
        assert len(running(fleet, "guarded")) == 2
        fleet.plane.kubectl("patch", "pdb", "guarded", "-p", '{"spec":{"minAvailable":1}}')
        fleet.plane.kubectl(*drain, "--timeout=50s")
        rolled_out(fleet, "deployment/guarded")
        assert node not in {pod["spec"]["nodeName"] for pod in running(fleet, "guarded")}
    finally:
        fleet.plane.kubectl("uncordon", node)
        fleet.plane.kubectl("delete", "deployment/guarded", "pdb/guarded")


def test_a_no_execute_taint_evicts_what_does_not_tolerate_it(fleet: Fleet) -> None:
    sensitive, stoic = simulated("sensitive", "gpu-node-6"), simulated("stoic", "gpu-node-6")
    sensitive["spec"]["tolerations"] = []
    fleet.apply(sensitive, stoic)
    for name in ("sensitive", "stoic"):
        fleet.phase(name, "Running")
    fleet.plane.kubectl("taint", "node", "gpu-node-6", "gameday.dev/test=x:NoExecute")
    try:
        gone = ("get", "pod", "sensitive", "--ignore-not-found")
        eventually(lambda: not fleet.plane.kubectl(*gone), "evicted, ended and gone")
        assert fleet.get("pod", "stoic")["status"]["phase"] == "Running"
    finally:
        fleet.plane.kubectl("taint", "node", "gpu-node-6", "gameday.dev/test-")
        fleet.remove("stoic")
