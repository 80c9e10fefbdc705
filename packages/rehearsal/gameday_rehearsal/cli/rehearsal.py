"""`gameday rehearse`, and `gameday rehearsal up | down | status`: commands that start or end an embedded cluster."""

from __future__ import annotations

import json
import shlex
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.completion import complete_plan
from gameday.cli.console import console
from gameday.cli.game_day import DEFAULT_PLAN, Arm, Reports, check_reports, complete, play, read_plan
from gameday.cli.help_page import HelpGroup, Panel, add_command
from gameday.cli.rehearse_options import (
    DEFAULT_DETECTOR,
    Cluster,
    Exporter,
    Folder,
    Gpus,
    GuestOption,
    KernelLogs,
    Nodes,
    PlansCluster,
    Repair,
    Watcher,
)
from gameday.cli.virtual_clusters import check_fit
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday_rehearsal.cli.choices import (
    client_nodes_for,
    control_plane_of,
    detector_of,
    guest_of,
    hold_outs,
    is_repaired,
    lab_settings_of,
    watching_profile,
)
from gameday_rehearsal.cli.embedded_cluster import cluster_ended, embedded, running_cluster
from gameday_rehearsal.cli.gpu_stack_options import (
    NO_GPU_OPERATOR,
    GpuOperatorWay,
    KubeStateMetrics,
    exporter_for,
    operator_of,
)
from gameday_rehearsal.cli.lab_options import LabOptions, takes_lab_options
from gameday_rehearsal.cli.long_running import end_holder, running_state
from gameday_rehearsal.cli.rehearsal_checks import check_release, nodes_at
from gameday_rehearsal.cli.this_machine import May, ThisMachine, rehearse_here

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.plan.load import LoadedPlan
    from gameday_rehearsal.cluster import RehearsalCluster

_FOLDER = Path(".rehearsal")
_VIRTUAL = 8
"""Virtual nodes, and GPUs of each, if nothing else is asked for."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def register(app: typer.Typer) -> None:
    """Add the commands of the embedded cluster."""
    add_command(
        app,
        rehearse,
        "gameday rehearse",
        "gameday rehearse xid-48-double-bit-ecc --nodes 16",
        "gameday rehearse my-plan.yaml --detector konduktor",
        "sudo gameday rehearse --this-machine",
        panel=Panel.START,
    )
    rehearsal = typer.Typer(
        cls=HelpGroup, help="Keep an embedded cluster running, for kubectl and Prefect's pages.", no_args_is_help=True
    )
    add_command(rehearsal, up, "gameday rehearsal up --nodes 16")
    add_command(rehearsal, down, "gameday rehearsal down")
    add_command(rehearsal, status, "gameday rehearsal status")
    app.add_typer(rehearsal, name="rehearsal", rich_help_panel=Panel.VIRTUAL)


@takes_lab_options
def rehearse(
    plan: Annotated[
        str | None,
        typer.Argument(
            autocompletion=complete_plan, help="A shipped plan's name, or a plan file.", show_default=DEFAULT_PLAN
        ),
    ] = None,
    nodes: Nodes = _VIRTUAL,
    gpus: Gpus = _VIRTUAL,
    detector: Watcher = None,
    cluster: PlansCluster = None,
    this_machine: ThisMachine = False,
    may: May = None,
    repair: Repair = "auto",
    reports: Reports = Path("reports"),
    keep: Annotated[bool, typer.Option(help="Keep the folder of the cluster, with its logs.")] = False,
    arm: Arm = None,
    scale: Annotated[
        str,
        typer.Option(help="Size of the experiment: small is the plan as written. `scales` in the plan names others."),
    ] = "small",
    exporter: Exporter = None,
    gpu_operator: GpuOperatorWay = NO_GPU_OPERATOR,
    kernel_logs: KernelLogs = None,
    guest: GuestOption = None,
    kube_state_metrics: KubeStateMetrics = None,
    *,
    lab_options: LabOptions,
) -> int:
    """Run a whole game-day on a cluster of virtual GPU nodes. No GPU and no cluster needed."""
    if this_machine:
        virtual = {
            "--nodes": nodes != _VIRTUAL,
            "--gpus": gpus != _VIRTUAL,
            "--repair": repair != "auto",
            "--arm": arm,
            "--scale": scale != "small",
            "--exporter": exporter,
            "--gpu-operator": gpu_operator != NO_GPU_OPERATOR,
            "--kernel-logs": kernel_logs,
            "--guest": guest,
            "--kube-state-metrics": kube_state_metrics is not None,
        }
        if given := [option for option, value in virtual.items() if value]:
            raise CommandError(f"{given[0]} is about virtual nodes: leave it out, or --this-machine")
        return rehearse_here(plan, detector, cluster, may, reports, lab_options, keep=keep)
    if may:
        raise CommandError("--may is about this machine's own GPUs: add --this-machine, or leave it out")
    plan = plan or DEFAULT_PLAN
    written = read_plan(plan)
    defaults = _asked(written, scale, arm).plan.rehearsal
    cluster = cluster or defaults.cluster or "embedded"
    lab = lab_settings_of(cluster, lab_options, defaults)
    watching = guest_of(guest, cluster, detector)
    detector = detector or DEFAULT_DETECTOR
    detector_of(detector, watching)  # refuses a name that nobody has
    loaded = _asked(complete(written, (), watching_profile(detector, watching)), scale, arm)
    if scale in written.scales:
        nodes = max(nodes, nodes_at(written.plan, scale))
    checked = loaded.plan
    for one in loaded.played:
        check_fit(one.plan, nodes, gpus)
        check_release(one.plan)
    check_reports(reports)
    out = console()
    repaired = is_repaired(repair, hands_off=any(one.plan.recover.is_hands_off for one in loaded.played))
    from gameday_rehearsal.seed import OFFENDER_LABEL, WEAKLY_COOLED_LABEL

    chosen_by = checked.targets.selector
    flow = "gameday.flows.arms" if loaded.arms else "gameday.flows.game_day"
    with embedded(
        out,
        nodes,
        gpus,
        detector,
        cluster,
        keep=keep,
        flow=flow,
        repair=repaired,
        offender=OFFENDER_LABEL in chosen_by,
        weakly_cooled=WEAKLY_COOLED_LABEL in chosen_by,
        gpu_classes=checked.expect.placement is not None,
        lab=lab,
        client_nodes=client_nodes_for(checked),
        spare=0 if defaults.training else nodes,
        exporter=exporter_for(exporter, [one.plan for one in loaded.played]),
        gpu_operator=gpu_operator,
        kernel_logs=kernel_logs,
        guest=watching,
        kube_state_metrics=kube_state_metrics,
    ) as here:
        command = ["gameday", "rehearse", plan, "--nodes", nodes, "--gpus", gpus]
        command += ["--guest", guest] if guest else ["--detector", detector]
        command += ["--cluster", cluster, "--repair", repair, *(["--arm", arm] if arm else [])]
        command += ["--exporter", exporter] if exporter else []
        command += ["--gpu-operator", gpu_operator] if gpu_operator != NO_GPU_OPERATOR else []
        command += ["--kernel-logs", kernel_logs] if kernel_logs else []
        if kube_state_metrics is not None:
            command.append("--kube-state-metrics" if kube_state_metrics else "--no-kube-state-metrics")
        command += [*(["--scale", scale] if scale in written.scales else []), *lab_options.words()]
        line = shlex.join(str(word) for word in command)
        code = play(out, loaded, plan, str(here.cluster.profile), reports, "rehearsal", line)
        return here.end_with(ExitCode(code))


def _asked(loaded: LoadedPlan, scale: str, arm: str | None) -> LoadedPlan:
    """Return the plan at a scale, or one arm of it; raises DocumentError for one that it does not have."""
    at_scale = loaded.of_scale(scale)
    return at_scale.of_arm(arm) if arm else at_scale


@takes_lab_options
def up(
    nodes: Nodes = 8,
    gpus: Gpus = 8,
    detector: Watcher = None,
    cluster: Cluster = "embedded",
    repair: Repair = "off",
    folder: Folder = _FOLDER,
    exporter: Exporter = None,
    gpu_operator: GpuOperatorWay = NO_GPU_OPERATOR,
    kernel_logs: KernelLogs = None,
    guest: GuestOption = None,
    kube_state_metrics: KubeStateMetrics = None,
    *,
    lab_options: LabOptions,
) -> int:
    """Start a cluster of virtual GPU nodes and keep it until Ctrl-C or `gameday rehearsal down`."""
    from gameday_rehearsal.blueprint import Blueprint, Size
    from gameday_rehearsal.cluster import RehearsalCluster
    from gameday_rehearsal.lab.settings import STOCK

    out = console()
    repaired = is_repaired(repair)
    size = Size(nodes, gpus, hold_outs=hold_outs(nodes, repair=repaired), client_nodes=1)
    watching = guest_of(guest, cluster, detector)
    control_plane, (watcher, fake_detector) = (
        control_plane_of(cluster),
        detector_of(detector or DEFAULT_DETECTOR, watching),
    )
    running = RehearsalCluster(
        Blueprint(
            folder,
            size,
            watcher,
            control_plane=control_plane,
            lab=lab_settings_of(cluster, lab_options) or STOCK,
            fake_detector=fake_detector,
            repair=repaired,
            exporter=exporter_for(exporter, []),
            gpu_operator=operator_of(gpu_operator),
            kernel_logs=kernel_logs,
            guest=watching,
            kube_state_metrics=kube_state_metrics,
        )
    )
    ended = threading.Event()
    with running_cluster(running, out) as watch:
        for which in _SIGNALS:
            signal.signal(which, lambda *_: ended.set())
        _print_how_to(out, running)
        while not ended.wait(1.0):
            if watch.error:
                raise cluster_ended(watch.error)
            if died := running.dead():
                raise CommandError(f"{running.child(died[0]).error('died')}; the rest is ended", ExitCode.INTERNAL)
    return ExitCode.PASSED


def down(folder: Folder = _FOLDER) -> int:
    """End the embedded cluster of this folder. Exit code 0 also when none runs."""
    return end_holder(folder, "rehearsal")


def status(folder: Folder = _FOLDER) -> int:
    """Say whether an embedded cluster runs in this folder, and where. Exit code 0 when it does, 1 when not (yet)."""
    state = running_state(folder, "rehearsal")
    if state is None:
        return ExitCode.FAILED
    typer.echo(json.dumps(state, indent=1))
    return ExitCode.PASSED


def _print_how_to(out: Console, cluster: RehearsalCluster) -> None:
    from gameday_rehearsal.observability import ALERTMANAGER_USER  # it costs a start

    profile = shlex.quote(str(cluster.profile))
    lines = [
        "the cluster is up; Ctrl-C ends it. In another terminal:",
        f"  export KUBECONFIG={shlex.quote(str(cluster.admin_kubeconfig))}",
        f"  export PREFECT_API_URL={cluster.urls['prefect']}/api",
        f'  export PREFECT_API_AUTH_STRING="$(cat {shlex.quote(str(cluster.prefect_password_file))})"',
        "  kubectl get nodes",
        f"  gameday run {DEFAULT_PLAN} --profile {profile}",
    ]
    lines += [f"  {name:<13} {url}" for name, url in cluster.urls.items()]
    lines.append(f"  (alertmanager: user {ALERTMANAGER_USER}, password in {cluster.alertmanager_password_file})")
    out.print("\n".join(lines), soft_wrap=True)
