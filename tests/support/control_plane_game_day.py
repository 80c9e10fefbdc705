"""Game-days of the control plane on a lab of their own, and a look at what they left there."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from prefect.settings import temporary_settings
from urllib3.exceptions import HTTPError

from gameday import cli
from gameday.cluster.devices import tainted_devices
from gameday.cluster.lab_control import SOCKET, look_at
from gameday.detectors.resolve import load_complete_plan
from gameday_rehearsal.blueprint import Blueprint, ControlPlane, Detector, Size
from gameday_rehearsal.cli.choices import client_nodes_for
from gameday_rehearsal.cli.lab_options import LabOptions
from gameday_rehearsal.cluster import RehearsalCluster
from tests.game_days.conftest import QUIET
from tests.rehearsal.lab.plane import need_programs
from tests.rehearsal.processes import until
from tests.support.prefect_api import client_settings

# A run makes thousands of Secrets, of which a few are enough to show that they are there.
_FEW = 10


@dataclass(frozen=True)
class Played:
    """A plan that was played to its end, and the names of our objects that are still there."""

    code: int
    output: str
    reports: Path
    left: list[str]


@contextmanager
def lab_for(folder: Path, plan: Path) -> Iterator[RehearsalCluster]:
    """The lab that a plan wants; flows of this process are noted in its Prefect server.

    Args:
        folder: Everything that is written.
        plan: The plan's file.
    """
    loaded = load_complete_plan(plan, ())
    wanted = loaded.plan
    settings = LabOptions().settings(wanted.rehearsal)
    need_programs(
        balancer=settings.has_balancer,
        topology=settings.topology,
        releases=[one.plan.rehearsal.api_server_release for one in loaded.played],
    )
    # A load on API servers needs no GPU; a plan about devices wants what `gameday rehearse` has.
    nodes = 8 if wanted.rehearsal.dra else 1
    size = Size(
        nodes,
        gpus=nodes,
        spare=0 if wanted.rehearsal.training else nodes,
        client_nodes=client_nodes_for(wanted),
    )
    with (
        RehearsalCluster(
            Blueprint(
                folder / "cluster",
                size,
                Detector.DEFAULT if wanted.rehearsal.dra else Detector.OFF,
                control_plane=ControlPlane.LAB,
                lab=settings,
            )
        ) as cluster,
        temporary_settings({**client_settings(cluster.prefect_client), **QUIET}),
    ):
        yield cluster


def play_on_a_lab(folder: Path, plan: Path, *arguments: str) -> Played:
    """Start the lab that the plan wants, play it there, and look before the lab goes.

    Args:
        folder: Everything that is written.
        plan: The plan's file.
        arguments: More of `gameday run`.
    """
    said, reports = io.StringIO(), folder / "reports"
    with lab_for(folder, plan) as cluster, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        before = game_day_objects(cluster)
        options = ["--profile", str(cluster.profile), "--reports", str(reports), *arguments]
        code = cli.run(["run", str(plan), *options])
        left = sorted(game_day_objects(cluster) - before)
    return Played(code, said.getvalue(), reports, left)


@contextmanager
def begun(cluster: RehearsalCluster, plan: Path, reports: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A `gameday run` in a process of its own, whose fault is in; it is killed where it has not ended by itself.

    Args:
        cluster: The lab.
        plan: The plan's file.
        reports: Folder of the run's own folder.
        arguments: More of `gameday run`.
    """
    argv = [sys.executable, "-m", "gameday.cli", "run", str(plan), *arguments]
    process = subprocess.Popen(
        [*argv, "--profile", str(cluster.profile), "--reports", str(reports)],
        env={**os.environ, **cluster.prefect_client},
    )
    try:
        until(lambda: events(reports, "fault_injected") or process.poll() is not None, 400, "the fault is in")
        assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.wait()


def events(reports: Path, kind: str) -> list[dict[str, Any]]:
    """The events of a kind in the histories of all runs."""
    lines = [line for file in sorted(reports.rglob("history.jsonl")) for line in file.read_text().splitlines()]
    found = [json.loads(line)["event"] for line in lines if line.endswith("}")]
    return [event for event in found if event["kind"] == kind]


def kill_agents(folder: Path) -> None:
    """Kill the agents of the cluster whose own files are below a folder."""
    for pid, words in _game_day_processes(folder):
        if "gameday.agent" in words:
            os.kill(pid, signal.SIGKILL)


def game_day_processes(folder: Path) -> list[str]:
    """Return the command lines of agents and API clients whose cluster's own files are below a folder."""
    return [" ".join(words) for _, words in _game_day_processes(folder)]


def _game_day_processes(folder: Path) -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_text(errors="replace").split("\0")
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        ours = any(word == "gameday.agent" or word.startswith("gameday_control_plane.api_clients") for word in words)
        if ours and str(folder).encode() in environment:
            yield int(entry.name), words


def lab_control(cluster: RehearsalCluster) -> Path:
    """Return the lab's control socket."""
    return cluster.admin_kubeconfig.parent / SOCKET


def running_programs(cluster: RehearsalCluster) -> dict[str, tuple[str, str]]:
    """Return the command line and the environment of each of the lab's programs; empty texts for one that is held."""
    components = json.loads((cluster.admin_kubeconfig.parent / "components.json").read_bytes())
    return {name: _command(look_at(lab_control(cluster), name).pid) for name in components}


def _command(pid: int | None) -> tuple[str, str]:
    process = Path(f"/proc/{pid}")
    return ((process / "cmdline").read_text(), (process / "environ").read_text()) if pid else ("", "")


def game_day_objects(cluster: RehearsalCluster) -> set[str]:
    """Return the names of all objects of the kinds that game-days make, and the taints of nodes and devices.

    The API server is asked again and again while it is away, as one is that its memory limit killed.
    """
    found: list[set[str]] = []

    def look() -> bool:
        with contextlib.suppress(ApiException, HTTPError):
            found.append(_objects(cluster))
        return bool(found)

    until(look, 60, "the API server answers")
    return found[0]


def _objects(cluster: RehearsalCluster) -> set[str]:
    api = config.new_client_from_config(str(cluster.admin_kubeconfig))
    flow, core, rights = (
        client.FlowcontrolApiserverV1Api(api),
        client.CoreV1Api(api),
        client.RbacAuthorizationV1Api(api),
    )
    leases, admission = client.CoordinationV1Api(api), client.AdmissionregistrationV1Api(api)
    resources = client.ResourceV1Api(api)
    lists = {
        "flow schema": flow.list_flow_schema(),
        "priority level": flow.list_priority_level_configuration(),
        "validating webhook": admission.list_validating_webhook_configuration(),
        "mutating webhook": admission.list_mutating_webhook_configuration(),
        "cluster role binding": rights.list_cluster_role_binding(),
        "role binding": rights.list_role_binding_for_all_namespaces(),
        "secret": core.list_namespaced_secret("gameday-load", limit=_FEW),
        "config map": core.list_namespaced_config_map("gameday-load", limit=_FEW),
        "pod of the load": core.list_namespaced_pod("gameday-load"),
        "claim": resources.list_namespaced_resource_claim("gameday-load"),
        "claim template": resources.list_namespaced_resource_claim_template("gameday-load"),
        "lease of the load": leases.list_namespaced_lease("gameday-load"),
        "lease": leases.list_namespaced_lease("gameday"),
        "ledger": core.list_namespaced_config_map("gameday"),
        "pod": core.list_namespaced_pod("gameday"),
    }
    named = {f"{kind} {one.metadata.name}" for kind, found in lists.items() for one in found.items}
    nodes = core.list_node().items
    taints = {f"taint {taint.key} of {node.metadata.name}" for node in nodes for taint in node.spec.taints or ()}
    cordons = {f"cordon of {node.metadata.name}" for node in nodes if node.spec.unschedulable}
    devices = {f"device taint {one}" for one in tainted_devices(resources.list_resource_slice().items)}
    return named | taints | cordons | devices
