"""Virtual nodes under the real node lifecycle: they register, keep alive, fall silent, leave and come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rehearsal.lab.nodes import GPUS, NODES, Fleet, eventually
from tests.rehearsal.lab.plane import Plane
from tests.rehearsal.nodes.conftest import simulated

pytestmark = pytest.mark.lab
LEASES = ("-n", "kube-node-lease", "lease")


def test_every_node_becomes_ready_and_loses_the_taint_of_a_new_one(fleet: Fleet) -> None:
    fleet.plane.kubectl("wait", "nodes", "--all", "--for=condition=Ready", "--timeout=55s")
    names = [f"gpu-node-{number}" for number in range(1, NODES + 1)]
    eventually(lambda: not any(fleet.taints(name) for name in names), "no taint left")
    node = fleet.get("node", "gpu-node-1")["status"]
    assert node["allocatable"]["nvidia.com/gpu"] == str(GPUS)
    version = json.loads(fleet.plane.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
    assert node["nodeInfo"]["kubeletVersion"] == version


def test_the_lease_belongs_to_the_node_and_is_renewed(fleet: Fleet) -> None:
    lease = eventually(lambda: fleet.get(*LEASES)["items"], "a lease")[0]
    name = lease["metadata"]["name"]
    assert lease["metadata"]["ownerReferences"][0]["uid"] == fleet.get("node", name)["metadata"]["uid"]
    before = lease["spec"]["renewTime"]
    renewed = eventually(lambda: fleet.get(*LEASES, name)["spec"]["renewTime"] != before, "renewed")
    assert renewed
    assert fleet.get(*LEASES, name)["spec"]["holderIdentity"] == name


def test_a_condition_that_somebody_else_wrote_is_written_over(fleet: Fleet) -> None:
    gone = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    patch = json.dumps({"status": {"conditions": [gone]}})
    fleet.plane.kubectl("patch", "node", "gpu-node-2", "--subresource=status", "--type=strategic", "-p", patch)
    eventually(lambda: fleet.ready_status("gpu-node-2") == "True", "Ready again, long before the next report is due")


def test_a_rebooted_node_reports_its_new_boot_and_starts_its_pods_again(fleet: Fleet) -> None:
    boot = fleet.get("node", "gpu-node-3")["status"]["nodeInfo"]["bootID"]
    fleet.apply(simulated("rebooted", "gpu-node-3", policy="Always"))
    fleet.phase("rebooted", "Running")
    fleet.systemctl("gpu-node-3", "reboot")
    eventually(lambda: fleet.get("node", "gpu-node-3")["status"]["nodeInfo"]["bootID"] != boot, "another boot id")
    status = eventually(
        lambda: (s := fleet.get("pod", "rebooted")["status"]["containerStatuses"][0])["restartCount"] == 1 and s,
        "the container started again",
    )
    assert status["lastState"]["terminated"]["reason"] == "Unknown"
    eventually(lambda: fleet.ready_status("gpu-node-3") == "True" and not fleet.taints("gpu-node-3"), "Ready again")
    fleet.remove("rebooted")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_silent_node_is_marked_unknown_and_comes_back(fleet: Fleet) -> None:
    fleet.systemctl("gpu-node-4", "stop", "kubelet")
    eventually(lambda: fleet.ready_status("gpu-node-4") == "Unknown", "given up after 50 s", within_s=120)
    unreachable = "node.kubernetes.io/unreachable"
    wanted = {(unreachable, "NoSchedule"), (unreachable, "NoExecute")}
    eventually(lambda: fleet.taints("gpu-node-4") == wanted, "tainted")
    fleet.systemctl("gpu-node-4", "start", "kubelet")
    eventually(lambda: fleet.ready_status("gpu-node-4") == "True", "Ready again")
    eventually(lambda: not fleet.taints("gpu-node-4"), "no taint left")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_deleted_node_takes_its_pods_along_and_returns_when_its_kubelet_is_started(fleet: Fleet) -> None:
    fleet.apply(simulated("orphan", "gpu-node-5", policy="Always"))
    fleet.phase("orphan", "Running")
    fleet.plane.kubectl("delete", "node", "gpu-node-5")
    collected = "--ignore-not-found"
    # Pod GC looks every 20 s and waits 40 s before it believes that a Node is gone.
    eventually(lambda: not fleet.plane.kubectl("get", "pod", "orphan", collected), "the pod collected", within_s=120)
    assert not fleet.plane.kubectl("get", "node", "gpu-node-5", collected)
    fleet.systemctl("gpu-node-5", "restart", "kubelet")
    eventually(lambda: fleet.plane.kubectl("get", "node", "gpu-node-5", collected), "registered anew")
    eventually(lambda: fleet.ready_status("gpu-node-5") == "True" and not fleet.taints("gpu-node-5"), "Ready")


def test_without_a_tls_folder_the_nodes_join_and_logs_say_why_there_are_none(plane: Plane, tmp_path: Path) -> None:
    bare = Fleet(plane, tmp_path, "--nodes", "1", "--name-prefix", "bare")
    try:
        node = bare.get("node", "bare-1")["status"]
        assert "daemonEndpoints" not in node or not node["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        bare.apply(simulated("mute", "bare-1"))
        bare.phase("mute", "Running")
        assert "no preferred addresses found" in bare.refused("logs", "mute")
        bare.remove("mute")
    finally:
        bare.end()
        plane.kubectl("delete", "node", "bare-1")
    assert bare.log.read_text() == ""
