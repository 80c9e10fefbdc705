"""The base of the dead-man's switch: containers end by the clock and with their node, whatever else is dead."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rehearsal.nodes.conftest import Cluster, Program, agent, eventually, simulated

pytestmark = pytest.mark.slow

XID = {"role": "inject", "gpu": 0, "fault": {"type": "xid", "xid": 79}, "hold_s": 60}


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    yield running
    running.end()


def processes_of(pod_uid: str) -> list[int]:
    """The pids whose environment names the pod's folder."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and pod_uid.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def started(cluster: Cluster, name: str) -> str:
    """The ready agent pod's UID."""
    eventually(lambda: cluster.is_ready(name), "the fault in")
    uid = cluster.pod(name)["metadata"]["uid"]
    assert processes_of(uid)
    return uid


def test_containers_die_with_a_killed_nodes_process(own_cluster: Cluster) -> None:
    own_cluster.create(agent("inject", "gpu-node-1", XID))
    uid = started(own_cluster, "inject")
    own_cluster.nodes.end(signal.SIGKILL)
    eventually(lambda: not processes_of(uid), "the agent's process gone")


def test_the_deadline_holds_without_an_api_server_and_is_reported_when_it_is_back(own_cluster: Cluster) -> None:
    # Long enough for the fault to go in first, on a busy machine too.
    own_cluster.create(agent("inject", "gpu-node-1", XID, activeDeadlineSeconds=12))
    own_cluster.create(simulated("train", "gpu-node-1", policy="Always"))
    uid = started(own_cluster, "inject")
    port = own_cluster.api.ready["url"].rsplit(":", 1)[1]
    own_cluster.api.end()
    eventually(lambda: not processes_of(uid), "the agent's process gone")
    own_cluster.api = Program("kubesim.apiserver", "--data-dir", str(own_cluster.folder / "api"), "--port", port)
    pod = own_cluster.phase("inject", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert '"ended_by":"sigterm"' in pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    own_cluster.delete("train")
    own_cluster.gone("train")


def test_a_stopped_kubelet_falls_silent_and_comes_back(own_cluster: Cluster) -> None:
    from gameday.host.virtual import VirtualHost

    host = VirtualHost(own_cluster.host("gpu-node-1"))
    host.run(["systemctl", "stop", "kubelet"], 5)
    own_cluster.create(simulated("late", "gpu-node-1"))
    own_cluster.create(simulated("other", "gpu-node-2"))
    own_cluster.phase("other", "Running")
    assert own_cluster.pod("late")["status"]["phase"] == "Pending"
    host.run(["systemctl", "start", "kubelet"], 5)
    own_cluster.phase("late", "Running")
