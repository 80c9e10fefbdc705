"""This machine as a node: its real kernel log and the real host, with our mock library in place of the GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest

from gameday.history.events import QaChecked, RunStarted, TaintSeen, TargetsChosen
from gameday.history.journal import read_history
from gameday_rehearsal.blueprint import Blueprint, Detector, MachineUse, Size
from gameday_rehearsal.cluster import RehearsalCluster
from gameday_rehearsal.this_machine.kernel_log import KMSG
from kubesim.kubeconfig import Kubeconfig
from tests.agent.test_real_host import FIT
from tests.cluster.servers.conftest import eventually
from tests.rehearsal.processes import naming
from tests.support.mock_nvml import MockNvml, healthy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not KMSG.is_char_device(), reason="needs root and the kernel's own /dev/kmsg"
    ),
]
XID = "NVRM: Xid (PCI:0000:4e:00): 31"


@pytest.fixture
def nvml(mock_nvml: MockNvml, monkeypatch: pytest.MonkeyPatch) -> MockNvml:
    """Return one GPU that QA passes; every process that is started from here sees it."""
    fit = {f"0.{key}": value for key, value in (FIT | {"nvmlDeviceGetNvLinkState": "!3"}).items()}
    mock_nvml.show({"nvmlDeviceGetCount_v2": "1", **healthy(0), **fit})
    for name, value in mock_nvml.environment.items():
        monkeypatch.setenv(name, value)
    return mock_nvml


@pytest.mark.usefixtures("nvml")
def test_a_whole_game_day_on_this_machine(tmp_path: Path) -> None:
    reports, seen = tmp_path / "reports", tmp_path / "dmesg"
    argv = [sys.executable, "-m", "gameday.cli", "rehearse", "--this-machine", "--reports", str(reports)]
    with seen.open("w") as output, subprocess.Popen(["dmesg", "--follow-new"], stdout=output) as reader:
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        finally:
            reader.kill()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not seen: a real GPU" in done.stdout
    assert XID in seen.read_text(), "a program of another project reads the line"

    (run,) = reports.iterdir()
    history = read_history(run / "history.jsonl")
    started, chosen = history.first(RunStarted), history.last(TargetsChosen)
    assert started and chosen
    assert (started.cluster_name, started.virtual) == ("this-machine", True)
    assert [target.node for target in chosen.targets] == ["metal-0"]
    assert history.of(TaintSeen)
    assert {one.check for one in history.of(QaChecked) if one.ok} >= {"gpu-count", "kernel-log", "persistence-mode"}
    metrics = pd.read_parquet(run / "frames/metrics.parquet")
    assert set(metrics["node"]) == {"metal-0"}
    assert {"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP"} <= set(metrics["metric"])
    assert not [name for name in set(metrics["metric"]) if name.startswith("DCGM_FI_PROF")]


def _get(cluster: RehearsalCluster, path: str) -> Any:
    kubeconfig = Kubeconfig.load(cluster.admin_kubeconfig)
    headers = {"Authorization": f"Bearer {kubeconfig.token}"}
    answer = httpx.get(f"{kubeconfig.server}{path}", headers=headers, verify=kubeconfig.tls or True, trust_env=False)
    return answer.raise_for_status().json()


def _gpus(cluster: RehearsalCluster) -> str:
    status = _get(cluster, "/api/v1/nodes/metal-0")["status"]
    return str(status["allocatable"]["nvidia.com/gpu"])


def _series(cluster: RehearsalCluster, metric: str) -> list[Any]:
    url = f"{cluster.urls['prometheus']}/api/v1/query"
    found: list[Any] = httpx.get(url, params={"query": metric}, trust_env=False).json()["data"]["result"]
    return found


def test_a_gpu_that_is_lost_is_no_longer_offered_and_has_no_figures(nvml: MockNvml, tmp_path: Path) -> None:
    blueprint = Blueprint(tmp_path / "cluster", Size(1, 1), Detector.OFF, prefect=False, this_machine=MachineUse())
    with RehearsalCluster(blueprint) as cluster:
        (node,) = _get(cluster, "/api/v1/nodes")["items"]
        assert node["metadata"]["name"] == "metal-0"
        assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
        assert not node["spec"]["providerID"].startswith("virtual://")
        assert node["status"]["nodeInfo"]["kernelVersion"] == os.uname().release
        assert _gpus(cluster) == node["status"]["capacity"]["nvidia.com/gpu"] == "1"
        temperature = partial(_series, cluster, 'DCGM_FI_DEV_GPU_TEMP{Hostname="metal-0"}')
        eventually(temperature, bool)
        nvml.lose(0)
        eventually(partial(_gpus, cluster), lambda gpus: gpus == "0")
        eventually(temperature, lambda series: not series)
    assert naming(tmp_path) == set()
