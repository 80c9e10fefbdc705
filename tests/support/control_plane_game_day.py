"""Game-days of the control plane on a lab of their own, and a look at what they left there."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kubernetes import client, config
from prefect.settings import PREFECT_API_URL, temporary_settings

from gameday import cli
from gameday.cli.lab_options import LabOptions
from gameday.cli.rehearsal import client_nodes_for
from gameday.detectors.resolve import load_complete_plan
from gameday.rehearsal.cluster import ControlPlane, Detector, RehearsalCluster, Size
from tests.game_days.conftest import QUIET
from tests.rehearsal.lab.plane import need_programs


@dataclass(frozen=True)
class Played:
    """A plan that was played to its end, and the names of our objects that are still there."""

    code: int
    output: str
    reports: Path
    left: list[str]


def play_on_a_lab(folder: Path, plan: Path, *arguments: str) -> Played:
    """Start the lab that the plan wants, play it there, and look before the lab goes.

    Args:
        folder: Everything that is written.
        plan: The plan's file.
        arguments: More of `gameday run`.
    """
    loaded = load_complete_plan(plan, ())
    need_programs(releases=[one.plan.rehearsal.api_server_release for one in loaded.played])
    wanted = loaded.plan
    # A load on API servers needs no GPU; a plan about devices wants what `gameday rehearse` has.
    nodes = 8 if wanted.rehearsal.dra else 1
    size = Size(
        nodes,
        gpus=nodes,
        spare=0 if wanted.rehearsal.training else nodes,
        client_nodes=client_nodes_for(wanted),
    )
    said, reports = io.StringIO(), folder / "reports"
    with (
        RehearsalCluster(
            folder / "cluster",
            size,
            Detector.DEFAULT if wanted.rehearsal.dra else Detector.OFF,
            control_plane=ControlPlane.LAB,
            lab=LabOptions().settings(wanted.rehearsal),
        ) as cluster,
        temporary_settings({PREFECT_API_URL: f"{cluster.urls['prefect']}/api", **QUIET}),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        options = ["--profile", str(cluster.profile), "--reports", str(reports), *arguments]
        code = cli.run(["run", str(plan), *options])
        left = list(_left(cluster.admin_kubeconfig))
    return Played(code, said.getvalue(), reports, left)


def _left(kubeconfig: Path) -> Iterator[str]:
    """Yield what a game-day made and did not take back."""
    api = config.new_client_from_config(str(kubeconfig))
    flow, core = client.FlowcontrolApiserverV1Api(api), client.CoreV1Api(api)
    leases, admission = client.CoordinationV1Api(api), client.AdmissionregistrationV1Api(api)
    for kind, found in (
        ("flow schema", flow.list_flow_schema()),
        ("priority level", flow.list_priority_level_configuration()),
        ("webhook", admission.list_validating_webhook_configuration()),
        ("secret", core.list_namespaced_secret("gameday-load", limit=10)),
        ("lease", leases.list_namespaced_lease("gameday-load")),
        ("lease", leases.list_namespaced_lease("gameday")),
        ("pod", core.list_namespaced_pod("gameday")),
    ):
        for one in found.items:
            if kind not in ("flow schema", "priority level") or "gameday" in one.metadata.name:
                yield f"{kind} {one.metadata.namespace or ''}/{one.metadata.name}"
