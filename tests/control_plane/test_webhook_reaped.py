"""A game-day and its agent are killed while their webhook refuses nodes' Leases: the reaper takes it out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes import client, config
from prefect.settings import PREFECT_API_URL, temporary_settings

from gameday import cli
from gameday.api_clients.webhook import NAME
from gameday.plan.catalogue import control_plane_plans
from gameday.rehearsal.cluster import ControlPlane, Detector, RehearsalCluster, Size
from tests.game_days.conftest import QUIET
from tests.rehearsal.lab.plane import need_programs
from tests.rehearsal.processes import until

PLAN = control_plane_plans()["webhook-gone"]


@pytest.mark.lab
@pytest.mark.timeout(300)
def test_the_reaper_takes_out_the_webhook_of_a_killed_game_day_and_its_killed_agent(tmp_path: Path) -> None:
    need_programs()
    reports = tmp_path / "reports"
    with RehearsalCluster(
        tmp_path / "cluster",
        Size(1, gpus=1, spare=0, client_nodes=1),
        Detector.OFF,
        control_plane=ControlPlane.LAB,
    ) as cluster:
        with cluster.profile.open("a", encoding="utf-8") as profile:
            profile.write("lease_duration_s: 8\n")  # which the reaper waits for
        prefect = {"PREFECT_API_URL": f"{cluster.urls['prefect']}/api"}
        argv = [sys.executable, "-m", "gameday.cli", "run", str(PLAN), "--arm", "everything"]
        process = subprocess.Popen(
            [*argv, "--profile", str(cluster.profile), "--reports", str(reports)], env={**os.environ, **prefect}
        )
        try:
            until(lambda: "fault_injected" in _kinds(reports) or process.poll() is not None, 120, "the webhook is in")
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()
        _kill_agents(tmp_path)
        api = config.new_client_from_config(str(cluster.admin_kubeconfig))
        assert NAME in _webhooks(api), "nobody is left who could take it out"
        with temporary_settings({PREFECT_API_URL: prefect["PREFECT_API_URL"], **QUIET}):
            code = cli.run(["reap", "--profile", str(cluster.profile), "--reports", str(reports)])
        assert (code, NAME in _webhooks(api)) == (0, False)
        assert [
            one.metadata.name
            for one in client.CoreV1Api(api).list_namespaced_config_map("gameday-load").items
            if "gameday.dev/load" in (one.metadata.labels or {})
        ] == []


def _kinds(reports: Path) -> set[str]:
    lines = [line for file in reports.glob("*/history.jsonl") for line in file.read_text().splitlines()]
    return {json.loads(line)["event"]["kind"] for line in lines if line.endswith("}")}


def _webhooks(api: client.ApiClient) -> list[str]:
    found = client.AdmissionregistrationV1Api(api).list_validating_webhook_configuration().items
    return [one.metadata.name for one in found]


def _kill_agents(folder: Path) -> None:
    """Kill the agents of this test's cluster, whose own files are below its folder."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            ours = str(folder).encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        if b"gameday.agent" in command and ours:
            os.kill(int(entry.name), signal.SIGKILL)
