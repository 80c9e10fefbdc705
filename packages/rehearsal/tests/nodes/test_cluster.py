"""Virtual nodes as processes, against the embedded API server, with the real agent in their pods."""

from __future__ import annotations

import itertools
import json
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gameday.errors import HostBusyError, HostError
from gameday.host import open_host
from gameday.host.virtual import VirtualHost
from tests.rehearsal.nodes.conftest import Cluster, Program, agent, eventually, simulated

XID = {"role": "inject", "gpu": 2, "fault": {"type": "xid", "xid": 79}, "hold_s": 60}


def terminated(pod: dict[str, Any]) -> dict[str, Any]:
    return pod["status"]["containerStatuses"][0]["state"]["terminated"]


def gpu_series(cluster: Cluster, node: str, name: str) -> list[str]:
    text = httpx.get(cluster.nodes.ready["metrics"], params={"node": node, "name": name}).text
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.slow
def test_nodes_register_ready_with_gpus_and_a_lease(cluster: Cluster) -> None:
    node = cluster.node("gpu-node-1")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["metadata"]["labels"]["gameday.dev/opt-in"] == "true"
    assert node["metadata"]["labels"]["nvidia.com/gpu.count"] == "4"
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]} == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }
    assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == cluster.nodes.ready["kubelet_port"]
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/gpu-node-1"
    found = eventually(lambda: (a := cluster.http.get(lease)).status_code == 200 and a.json(), "a lease")
    assert found["spec"]["holderIdentity"] == "gpu-node-1"


@pytest.mark.slow
def test_a_deleted_node_ships_no_more_lines_until_its_kubelet_is_started_again(cluster: Cluster) -> None:
    gone, other = VirtualHost(cluster.host("gpu-node-3")), VirtualHost(cluster.host("gpu-node-2"))
    cluster.http.delete("/api/v1/nodes/gpu-node-3").raise_for_status()
    number = itertools.count(1)

    def stored(node: str, text: str) -> list[str]:
        query = f'{{k8s_node_name="{node}"}} |= "{text}"'
        url = f"{cluster.logs.ready['url']}/loki/api/v1/query_range"
        found = httpx.get(url, params={"query": query}).raise_for_status().json()["data"]["result"]
        return [line for stream in found for _, line in stream["values"]]

    def silent() -> str:
        line = f"line {next(number)} of the test"
        gone.write_kernel_log(f"<6>{line}")
        other.write_kernel_log(f"<6>{line}")
        eventually(lambda: stored("gpu-node-2", line), "the other node's line in the log store")
        return "" if stored("gpu-node-3", line) else line

    last = eventually(silent, "the deleted node ships nothing")
    gone.run(["systemctl", "restart", "kubelet"], 5)
    eventually(lambda: stored("gpu-node-3", last), "the line in the log store, once the node is registered again")
    assert cluster.node("gpu-node-3")["status"]["allocatable"]["nvidia.com/gpu"] == "4"


@pytest.mark.slow
def test_an_injection_becomes_ready_and_is_undone_by_deletion(cluster: Cluster) -> None:
    cluster.create(agent("inject", "gpu-node-1", XID))
    eventually(lambda: cluster.is_ready("inject"), "the fault in")
    query = {"query": '{k8s_daemonset_name="dmesg", k8s_node_name="gpu-node-1"} |= "Xid"'}
    url = f"{cluster.logs.ready['url']}/loki/api/v1/query_range"
    stored = eventually(lambda: httpx.get(url, params=query).json()["data"]["result"], "the line in the log store")
    assert ": 79, " in stored[0]["values"][0][1]
    log = cluster.http.get("/api/v1/namespaces/default/pods/inject/log").text
    assert json.loads(log.splitlines()[0])["note"] == "injected"
    stamped = cluster.http.get("/api/v1/namespaces/default/pods/inject/log", params={"timestamps": "true"}).text
    assert stamped.split(" ", 1)[1].splitlines()[0] == log.splitlines()[0]
    seen: list[dict[str, Any]] = []
    watching = threading.Event()

    def watch() -> None:
        params = {"watch": "true", "fieldSelector": "metadata.name=inject", "timeoutSeconds": "20"}
        with cluster.http.stream("GET", "/api/v1/namespaces/default/pods", params=params) as answer:
            watching.set()
            for line in answer.iter_lines():
                seen.append(json.loads(line))
                if seen[-1]["type"] == "DELETED":
                    return

    watcher = threading.Thread(target=watch)
    watcher.start()
    watching.wait(10)
    cluster.delete("inject")
    watcher.join(25)
    cluster.gone("inject")
    outcome = json.loads(terminated(seen[-1]["object"])["message"])
    assert (outcome["role"], outcome["ended_by"], outcome["ok"]) == ("inject", "sigterm", True)


@pytest.mark.slow
def test_the_deadline_takes_the_fault_out(cluster: Cluster) -> None:
    cluster.create(agent("late", "gpu-node-2", XID, activeDeadlineSeconds=15))
    eventually(lambda: cluster.is_ready("late"), "the fault in")
    pod = cluster.phase("late", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert json.loads(terminated(pod)["message"])["ended_by"] == "sigterm"
    cluster.delete("late")
    cluster.gone("late")


@pytest.mark.slow
def test_a_reboot_by_the_agent_kills_it_with_the_node_and_both_are_reported(cluster: Cluster) -> None:
    boot_id = cluster.node("gpu-node-3")["status"]["nodeInfo"]["bootID"]
    cluster.create(simulated("always", "gpu-node-3", gpus=2, policy="Always"))
    cluster.create(simulated("never", "gpu-node-3", gpus=1))
    cluster.phase("always", "Running")
    cluster.phase("never", "Running")
    cluster.create(agent("reboot", "gpu-node-3", {"role": "remediate", "action": "reboot"}))
    eventually(lambda: cluster.node("gpu-node-3")["status"]["nodeInfo"]["bootID"] != boot_id, "another boot id")
    assert "Failed" in (cluster.phase("never", "Failed")["status"]["phase"])
    restarted = eventually(
        lambda: (
            (p := cluster.pod("always"))
            and (s := p["status"]["containerStatuses"][0])["restartCount"] == 1
            and "running" in s["state"]
            and s
        ),
        "the container restarted",
    )
    assert restarted["lastState"]["terminated"]["reason"] == "Unknown"
    assert json.loads(terminated(eventually(lambda: cluster.pod("reboot"), "the agent's pod"))["message"])["undo_state"]
    host = VirtualHost(cluster.host("gpu-node-3"))
    assert host.boot_id() == cluster.node("gpu-node-3")["status"]["nodeInfo"]["bootID"]
    assert len(gpu_series(cluster, "gpu-node-3", "DCGM_FI_DEV_GPU_TEMP")) == 4
    assert {c["type"]: c["status"] for c in cluster.node("gpu-node-3")["status"]["conditions"]}["Ready"] == "True"
    for name in ("always", "never", "reboot"):
        cluster.delete(name)
        cluster.gone(name)


@pytest.mark.slow
def test_gpus_are_given_out_labelled_refused_and_given_back(cluster: Cluster) -> None:
    cluster.create(simulated("train", "gpu-node-2", gpus=3, gpu_load="1.0"))
    cluster.phase("train", "Running")
    eventually(
        lambda: sum('pod="train"' in line for line in gpu_series(cluster, "gpu-node-2", "DCGM_FI_DEV_GPU_UTIL")) == 3,
        "three labelled GPUs",
    )
    host = VirtualHost(cluster.host("gpu-node-2"))
    assert "In use" in host.run(["nvidia-smi", "--gpu-reset", "-i", "0"], 5).stdout
    cluster.create(simulated("greedy", "gpu-node-2", gpus=2))
    refused = cluster.phase("greedy", "Failed")["status"]
    assert refused["reason"] == "UnexpectedAdmissionError"
    cluster.create(simulated("huge", "gpu-node-2", gpus=9))
    assert cluster.phase("huge", "Failed")["status"]["reason"] == "OutOfnvidia.com/gpu"
    for name in ("train", "greedy", "huge"):
        cluster.delete(name)
        cluster.gone(name)
    assert not any("pod=" in line for line in gpu_series(cluster, "gpu-node-2", "DCGM_FI_DEV_GPU_UTIL"))


@pytest.mark.slow
def test_simulated_containers_end_as_their_specs_ask(cluster: Cluster) -> None:
    cluster.create(simulated("good", "gpu-node-1", run_for="300ms"))
    cluster.create(simulated("bad", "gpu-node-1", run_for="300ms", exit_code="4"))
    sleeper = simulated("sleeper", "gpu-node-1")
    sleeper["spec"]["containers"][0]["command"] = ["sh", "-c", "sleep 0.2 && echo done"]
    cluster.create(sleeper)
    assert terminated(cluster.phase("good", "Succeeded"))["reason"] == "Completed"
    assert terminated(cluster.phase("bad", "Failed"))["exitCode"] == 4
    cluster.phase("sleeper", "Succeeded")
    retried = simulated("retried", "gpu-node-1", policy="OnFailure", run_for="100ms", exit_code="1")
    cluster.create(retried)
    eventually(
        lambda: (
            (p := cluster.pod("retried"))
            and (s := (p["status"].get("containerStatuses") or [{}])[0]).get("restartCount", 0) >= 1
            and s.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff"
        ),
        "crash loop back-off",
    )
    for name in ("good", "bad", "sleeper", "retried"):
        cluster.delete(name)
        cluster.gone(name)


@pytest.mark.slow
def test_init_containers_run_first(cluster: Cluster) -> None:
    pod = simulated("init", "gpu-node-1")
    pod["spec"]["initContainers"] = [{"name": "first", "image": "x", "command": ["sleep", "0.2"]}]
    cluster.create(pod)
    status = cluster.phase("init", "Running")["status"]
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    cluster.delete("init", gracePeriodSeconds=0)
    cluster.gone("init")


@pytest.mark.slow
def test_the_virtual_host_speaks_the_agents_protocol(cluster: Cluster) -> None:
    host = VirtualHost(cluster.host("gpu-node-1"))
    assert [gpu.index for gpu in host.gpus()] == [0, 1, 2, 3]
    host.write_kernel_log("<6>gameday: hello")
    assert host.read_kernel_log()[-1].endswith("gameday: hello")
    assert host.read_file("/proc/sys/kernel/random/boot_id").strip() == host.boot_id()
    assert host.run(["nvidia-smi", "-L"], 5).stdout.count("\n") == 4
    assert host.measure_load(0, 0.05).gemm_tflops > 600
    for call, said in (
        (lambda: host.read_file("/nope"), "ENOENT"),
        (lambda: host.measure_load(17, 0.1), "no GPU 17"),
        (lambda: VirtualHost(cluster.host("nobody")).boot_id(), "gpu-node-1 to gpu-node-3"),
    ):
        with pytest.raises(HostError, match=said):
            call()
    with pytest.raises(HostBusyError, match=r"did not end within 0\.2 s"):
        host.run(["dcgmi", "dmon", "-e", "150"], 0.2)
    raw = httpx.post(f"{cluster.host('gpu-node-1')}/call/write_kernel_log", json={"record": "<3>" + "x" * 1100})
    assert "Invalid argument" in raw.json()["error"]


@pytest.mark.slow
def test_a_lost_gpu_leaves_the_nodes_allocatable(cluster: Cluster) -> None:
    host = VirtualHost(cluster.host("gpu-node-2"))
    pci = f"/sys/bus/pci/devices/{host.gpus()[3].pci_bus_id}.0/remove"
    assert host.run(["nvidia-smi", "-i", "3", "-pm", "0"], 5).exit_status == 0  # else the daemon has it open
    host.write_file(pci, "1")
    eventually(lambda: cluster.node("gpu-node-2")["status"]["allocatable"]["nvidia.com/gpu"] == "3", "three left")
    assert cluster.node("gpu-node-2")["status"]["capacity"]["nvidia.com/gpu"] == "4"
    host.write_file("/sys/bus/pci/rescan", "1")
    eventually(lambda: cluster.node("gpu-node-2")["status"]["allocatable"]["nvidia.com/gpu"] == "4", "four again")


@pytest.mark.slow
def test_a_pod_speaks_to_the_api_server_with_its_own_account_until_it_ends(cluster: Cluster) -> None:
    cluster.create(agent("caller", "gpu-node-1", XID))
    eventually(lambda: cluster.is_ready("caller"), "the fault in")
    pod = cluster.pod("caller")
    folder = cluster.folder / "state" / "pods" / pod["metadata"]["uid"]
    account = open_host(_environment_of_process_in(folder)).api_server()
    assert account.token_file.is_relative_to(folder)
    with httpx.Client(base_url=account.url, verify=ssl.create_default_context(cafile=account.ca_file)) as http:
        headers = {"Authorization": f"Bearer {account.token_file.read_text()}"}
        review = http.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json={}, headers=headers).json()
        refused = http.get("/api/v1/namespaces/default/secrets", headers=headers)
    user = review["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:default:default"
    assert user["extra"]["authentication.kubernetes.io/pod-uid"] == [pod["metadata"]["uid"]]
    assert refused.status_code == 403
    cluster.delete("caller")
    cluster.gone("caller")
    eventually(lambda: not folder.exists(), "the pod's folder gone")


def _environment_of_process_in(folder: Path) -> dict[str, str]:
    """Return the environment of the process that works in a pod's folder."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == folder:
                variables = (process / "environ").read_bytes().decode().split("\0")
                return dict(variable.split("=", 1) for variable in variables if variable)
    raise AssertionError(f"no process works in {folder}")


@pytest.mark.slow
def test_a_new_nodes_process_takes_over_without_touching_what_others_set(cluster: Cluster) -> None:
    cluster.http.patch(
        "/api/v1/nodes/gpu-node-1",
        headers={"Content-Type": "application/merge-patch+json"},
        json={
            "metadata": {"labels": {"team": "ml", "gameday.dev/opt-in": "no"}},
            "spec": {"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        },
    ).raise_for_status()
    cluster.create(simulated("survivor", "gpu-node-1", policy="Always"))
    cluster.phase("survivor", "Running")
    cluster.create(agent("orphan", "gpu-node-1", XID))
    eventually(lambda: cluster.is_ready("orphan"), "the fault in")
    status, error = cluster.nodes.end()
    unexpected = [line for line in error.splitlines() if "was deleted; a reboot" not in line]
    assert (status, unexpected) == (0, [])
    cluster.nodes = cluster.start_nodes()
    node = cluster.node("gpu-node-1")
    assert {"key": "k", "value": "v", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["spec"]["unschedulable"] is True
    assert (node["metadata"]["labels"]["team"], node["metadata"]["labels"]["gameday.dev/opt-in"]) == ("ml", "no")
    eventually(
        lambda: (
            (s := cluster.pod("survivor")["status"]["containerStatuses"][0])["restartCount"] == 1
            and "running" in s["state"]
        ),
        "the container started again",
    )
    assert terminated(cluster.phase("orphan", "Failed"))["exitCode"] == 255
    for name in ("survivor", "orphan"):
        cluster.delete(name)
        cluster.gone(name)


def test_a_kubeconfig_that_is_none_is_a_plain_error(tmp_path: Any) -> None:
    missing = tmp_path / "none"
    with pytest.raises(AssertionError, match="cannot read the kubeconfig") as failed:
        Program("gameday_rehearsal.nodes", "--kubeconfig", str(missing))
    assert "Traceback" not in str(failed.value)
