"""`gameday rehearse`, and `gameday rehearsal up | down | status`: whatever starts or ends an embedded cluster."""

from __future__ import annotations

import atexit
import json
import os
import shlex
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.completion import complete_plan
from gameday.cli.console import console
from gameday.cli.game_day import DEFAULT_PLAN, Arm, Reports, check_reports, checked_plan, play
from gameday.cli.gpu_stack_options import (
    NO_GPU_OPERATOR,
    Exporter,
    GpuOperatorWay,
    KubeStateMetrics,
    exporter_for,
    operator_of,
)
from gameday.cli.help_page import HelpGroup, Panel, add_command
from gameday.cli.lab_options import (
    ApiServerFlags,
    ApiServerMemory,
    ApiServers,
    BalanceBy,
    ControllerManagerQps,
    Dra,
    Env,
    Hold,
    LabOptions,
    SchedulerQps,
)
from gameday.cli.long_running import end_holder, running_state
from gameday.errors import CommandError, StartError
from gameday.exit_codes import ExitCode
from gameday.rehearsal.nodes import MAX_NODES
from gameday.values.nodes import NodeRole

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.detectors.models import DetectorProfile
    from gameday.errors import RehearsalError
    from gameday.guests.load import LoadedGuest
    from gameday.plan.load import LoadedPlan
    from gameday.plan.models import Plan
    from gameday.plan.rehearsal import RehearsalSettings
    from gameday.rehearsal.blueprint import ControlPlane, Detector
    from gameday.rehearsal.cluster import RehearsalCluster
    from gameday.rehearsal.lab.settings import LabSettings
    from gameday.rehearsal.nodes.exporter_release import ExporterRelease
    from gameday.rehearsal.slow_gpus import SlowGpu
    from gameday.rehearsal.watch import Watch

_FOLDER = Path(".rehearsal")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
DEFAULT_DETECTOR = "default"
_OURS = "gameday"
"""The profile of the node-health controller, which runs here itself and needs no stand-in."""
_LEAVES_NO_LOGS = (ExitCode.PASSED, ExitCode.FAILED, ExitCode.ABORTED)
"""Exit codes after which the cluster's own logs are deleted. After any other they are the evidence that is left."""
_BYTES_OF_A_NODE = 1 << 20
"""Memory of a rehearsal for each of thousands of nodes: 5 GB with 5,000 of eight GPUs (docs/measured.md)."""

Nodes = Annotated[int, typer.Option(min=1, max=MAX_NODES, help="Virtual GPU nodes.")]
Gpus = Annotated[int, typer.Option(min=1, max=16, help="GPUs per virtual node.")]
Watcher = Annotated[
    str | None,
    typer.Option(
        "--detector",
        show_default=DEFAULT_DETECTOR,
        help="Who watches: default or conservative (our policies), konduktor (as released), off; or a detector "
        "profile's name or file (`gameday detectors`), of which a stand-in does what the profile says.",
    ),
]
_CLUSTER = typer.Option(
    "--cluster",
    help="Whose control plane: embedded (a stand-in, starts in a second), lab (Kubernetes' own; see `make lab`).",
)
Cluster = Annotated[str, _CLUSTER]
PlansCluster = Annotated[str | None, _CLUSTER]
"""The same where a plan may choose (`rehearsal.cluster`)."""
Repair = Annotated[
    str,
    typer.Option(
        "--repair",
        help="on: the detector's stack drains, repairs, validates and returns quarantined nodes; off: nobody does; "
        "auto: on for a plan with recover.by: cluster.",
    ),
]
GuestOption = Annotated[
    str | None,
    typer.Option(
        "--guest",
        metavar="FILE|COMMAND",
        help="A real detector watches in place of ours: a guest's file (.yaml), or its command, like "
        "'./detector --log {kernel_log} --node {node}' (docs/rehearsal.md, A guest).",
    ),
]
KernelLogs = Annotated[
    Path | None,
    typer.Option(
        "--kernel-logs",
        metavar="DIR",
        help="Write each node's kernel log as DIR/NODE/kmsg (a pipe that one program reads like /dev/kmsg) and "
        "DIR/NODE/kern.log, and its GPUs as DIR/NODE/nvml.yaml, for NVIDIA's mock NVML.",
    ),
]
Rehearse = Annotated[bool, typer.Option("--rehearse", help="Start an embedded cluster, in place of a real one.")]
KeepRehearsed = Annotated[
    bool, typer.Option("--keep/--no-keep", help="With --rehearse: keep the cluster's folder with its logs.")
]
Folder = Annotated[Path, typer.Option(help="Folder for the cluster's kubeconfig, profile and logs.")]


def register(app: typer.Typer) -> None:
    """Add the commands of the embedded cluster."""
    add_command(
        app,
        rehearse,
        "gameday rehearse",
        "gameday rehearse xid-48-double-bit-ecc --nodes 16",
        "gameday rehearse my-plan.yaml --detector konduktor",
        panel=Panel.START,
    )
    rehearsal = typer.Typer(
        cls=HelpGroup, help="Keep an embedded cluster running, for kubectl and Prefect's pages.", no_args_is_help=True
    )
    add_command(rehearsal, up, "gameday rehearsal up --nodes 16")
    add_command(rehearsal, down, "gameday rehearsal down")
    add_command(rehearsal, status, "gameday rehearsal status")
    app.add_typer(rehearsal, name="rehearsal", rich_help_panel=Panel.VIRTUAL)


def rehearse(
    plan: Annotated[
        str, typer.Argument(autocompletion=complete_plan, help="A shipped plan's name, or a plan file.")
    ] = DEFAULT_PLAN,
    nodes: Nodes = 8,
    gpus: Gpus = 8,
    detector: Watcher = None,
    cluster: PlansCluster = None,
    repair: Repair = "auto",
    reports: Reports = Path("reports"),
    keep: Annotated[bool, typer.Option(help="Keep the folder of the cluster, with its logs.")] = False,
    arm: Arm = None,
    scale: Annotated[
        str,
        typer.Option(help="Size of the experiment: small is the plan as written. `scales` in the plan names others."),
    ] = "small",
    apiservers: ApiServers = None,
    balance: BalanceBy = None,
    apiserver_flag: ApiServerFlags = None,
    apiserver_memory: ApiServerMemory = None,
    env: Env = None,
    controller_manager_qps: ControllerManagerQps = None,
    scheduler_qps: SchedulerQps = None,
    hold: Hold = None,
    dra: Dra = False,
    exporter: Exporter = None,
    gpu_operator: GpuOperatorWay = NO_GPU_OPERATOR,
    kernel_logs: KernelLogs = None,
    guest: GuestOption = None,
    kube_state_metrics: KubeStateMetrics = None,
) -> int:
    """Run a whole game-day on a cluster of virtual GPU nodes. No GPU and no cluster needed."""
    written = checked_plan(plan)
    loaded = written.of_scale(scale)
    at_scale = loaded is not written
    if at_scale:
        nodes = max(nodes, _nodes_at(written.plan, scale))
    if arm:
        loaded = loaded.of_arm(arm)
    checked = loaded.plan
    for one in loaded.played:
        check_fit(one.plan, nodes, gpus)
        _check_release(one.plan)
    check_reports(reports)
    options = LabOptions(
        apiservers, balance, apiserver_flag, apiserver_memory, env, controller_manager_qps, scheduler_qps, hold, dra
    )
    cluster = cluster or checked.rehearsal.cluster or "embedded"
    lab = _lab_settings(cluster, options, checked.rehearsal)
    watching = guest_of(guest, cluster, detector)
    detector = detector or DEFAULT_DETECTOR
    checked_plan(plan, watching=_watching(detector, watching))
    out = console()
    repaired = is_repaired(repair, hands_off=any(one.plan.recover.is_hands_off for one in loaded.played))
    from gameday.plan.catalogue import find_plan  # noqa: PLC0415
    from gameday.rehearsal.seed import OFFENDER_LABEL, WEAKLY_COOLED_LABEL  # noqa: PLC0415

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
        client_nodes=client_nodes_for(loaded.plan),
        spare=0 if checked.rehearsal.training else nodes,
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
        command += [*(["--scale", scale] if at_scale else []), *options.words()]
        line = shlex.join(str(word) for word in command)
        played = str(_file_at(written, find_plan(plan), scale, here.cluster.folder)) if at_scale else plan
        here.code = ExitCode(play(out, loaded, played, str(here.cluster.profile), reports, "rehearsal", line))
    return here.code


@dataclass
class Embedded:
    """A cluster that lasts one command. `code` is the command's, once it is known."""

    cluster: RehearsalCluster
    code: ExitCode = ExitCode.INTERNAL


@contextmanager
def embedded(
    out: Console,
    nodes: int,
    gpus: int,
    detector: str,
    cluster: str,
    *,
    keep: bool,
    flow: str,
    spare: int = 0,
    repair: bool = False,
    offender: bool = False,
    weakly_cooled: bool = False,
    slow_gpus: tuple[SlowGpu, ...] = (),
    gpu_classes: bool = False,
    client_nodes: int = 0,
    lab: LabSettings | None = None,
    exporter: ExporterRelease,
    gpu_operator: str = NO_GPU_OPERATOR,
    kernel_logs: Path | None = None,
    guest: LoadedGuest | None = None,
    kube_state_metrics: bool | None = None,
) -> Iterator[Embedded]:
    """Start a cluster for the block, with Prefect's settings and the flow's module loaded; its logs go with a good end.

    `lab` is for the cluster `lab`; None: stock. Raises CommandError for a choice nobody has, StartError for a cluster
    that does not start.
    """
    from gameday.cluster.virtual_cluster import ENDED  # noqa: PLC0415
    from gameday.rehearsal.blueprint import Blueprint, Size  # noqa: PLC0415
    from gameday.rehearsal.cluster import RehearsalCluster  # noqa: PLC0415
    from gameday.rehearsal.lab.settings import STOCK  # noqa: PLC0415

    (watcher, fake_detector), control_plane = detector_of(detector, guest), _control_plane(cluster)
    _check_memory(nodes)
    if exporter is not exporter_for(None, []):
        out.print(f"dcgm-exporter is as in release {exporter} (docs/rehearsal.md, Where the stand-ins differ)")
    operator = operator_of(gpu_operator)
    folder = Path(tempfile.mkdtemp(prefix="gameday-rehearsal-"))
    size = Size(
        nodes,
        gpus,
        spare,
        hold_outs(nodes, repair=repair),
        client_nodes,
        offender,
        weakly_cooled,
        slow_gpus,
        gpu_classes,
    )
    try:
        running = RehearsalCluster(
            Blueprint(
                folder,
                size,
                watcher,
                control_plane=control_plane,
                lab=lab or STOCK,
                fake_detector=fake_detector,
                repair=repair,
                exporter=exporter,
                gpu_operator=operator,
                kernel_logs=kernel_logs,
                guest=guest,
                kube_state_metrics=kube_state_metrics,
            )
        )
    except StartError:
        folder.rmdir()
        raise
    here = Embedded(running)
    try:
        _set_prefect(folder / "prefect-client", here.cluster.urls["prefect"])
        # Prefect and pandas load for seconds, just as the cluster does.
        threading.Thread(target=_load, args=(flow,), name="import", daemon=True).start()
        with running_cluster(here.cluster, out), _prefect_of(here.cluster):
            yield here
    except KeyboardInterrupt:
        here.code = ExitCode.ABORTED
        raise
    except CommandError as error:
        here.code = error.code
        raise
    finally:
        if keep or here.code not in _LEAVES_NO_LOGS or (folder / ENDED).exists():
            out.print(f"the cluster's logs: {folder}", soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            # Prefect makes its home while it is imported, which after Ctrl-C may be just now.
            atexit.register(shutil.rmtree, folder, ignore_errors=True)


def up(
    nodes: Nodes = 8,
    gpus: Gpus = 8,
    detector: Watcher = None,
    cluster: Cluster = "embedded",
    repair: Repair = "off",
    folder: Folder = _FOLDER,
    apiservers: ApiServers = None,
    balance: BalanceBy = None,
    apiserver_flag: ApiServerFlags = None,
    apiserver_memory: ApiServerMemory = None,
    env: Env = None,
    controller_manager_qps: ControllerManagerQps = None,
    scheduler_qps: SchedulerQps = None,
    hold: Hold = None,
    dra: Dra = False,
    exporter: Exporter = None,
    gpu_operator: GpuOperatorWay = NO_GPU_OPERATOR,
    kernel_logs: KernelLogs = None,
    guest: GuestOption = None,
    kube_state_metrics: KubeStateMetrics = None,
) -> int:
    """Start a cluster of virtual GPU nodes and keep it until Ctrl-C or `gameday rehearsal down`."""
    from gameday.rehearsal.blueprint import Blueprint, Size  # noqa: PLC0415
    from gameday.rehearsal.cluster import RehearsalCluster  # noqa: PLC0415
    from gameday.rehearsal.lab.settings import STOCK  # noqa: PLC0415

    out = console()
    repaired = is_repaired(repair)
    size = Size(nodes, gpus, hold_outs=hold_outs(nodes, repair=repaired), client_nodes=1)
    watching = guest_of(guest, cluster, detector)
    control_plane, (watcher, fake_detector) = (
        _control_plane(cluster),
        detector_of(detector or DEFAULT_DETECTOR, watching),
    )
    options = LabOptions(
        apiservers, balance, apiserver_flag, apiserver_memory, env, controller_manager_qps, scheduler_qps, hold, dra
    )
    running = RehearsalCluster(
        Blueprint(
            folder,
            size,
            watcher,
            control_plane=control_plane,
            lab=_lab_settings(cluster, options) or STOCK,
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


@contextmanager
def running_cluster(cluster: RehearsalCluster, out: Console) -> Iterator[Watch]:
    """The cluster for as long as the block runs. Ctrl-C and SIGTERM break off its start; nothing breaks off its end.

    Yields the watch that ends it early where it must not go on. Raises CommandError where that was during the start.
    """
    from gameday.rehearsal.signals import broken_off_by_signals, ignore_signals  # noqa: PLC0415
    from gameday.rehearsal.watch import Watch  # noqa: PLC0415

    size = cluster.size
    out.print(f"starting a cluster of {size.nodes} virtual nodes with {size.gpus} GPUs each", style="dim")
    with broken_off_by_signals():
        try:
            with Watch(cluster.check, cluster.kill) as watch:
                try:
                    with out.status("processes start"):
                        cluster.start()
                except StartError:
                    if watch.error:
                        raise cluster_ended(watch.error) from None
                    raise
                yield watch
        finally:
            ignore_signals()
            cluster.end()


def cluster_ended(error: RehearsalError) -> CommandError:
    """Return the end of a command whose cluster was ended for this reason."""
    from gameday.errors import MemoryShortError  # noqa: PLC0415

    code = ExitCode.ABORTED if isinstance(error, MemoryShortError) else ExitCode.INTERNAL
    return CommandError(f"{error}; the rest is ended", code)


def _load(module: str) -> None:
    with suppress(Exception):  # the code that needs it imports it again and gets the error
        import_module(module)


def guest_of(value: str | None, cluster: str, detector: str | None) -> LoadedGuest | None:
    """Return the guest of `--guest`; None without one.

    Raises:
        CommandError: It cannot watch on this control plane, `--detector` was given as well, or there is no such
            program.
        DocumentError: Its file cannot be used.
    """
    from gameday.errors import ProgramMissingError  # noqa: PLC0415
    from gameday.guests.load import load_guest  # noqa: PLC0415

    if value is None:
        return None
    if detector is not None:
        raise CommandError("--guest brings its own detector, and ours are off: leave out --detector, or --guest")
    try:
        loaded = load_guest(value)
    except ProgramMissingError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None
    if loaded.guest.cluster not in ("embedded", cluster):
        needs = f" ({loaded.guest.needs})" if loaded.guest.needs else ""
        raise CommandError(
            f"guest {loaded.guest.name} needs another control plane than --cluster {cluster}{needs}:"
            f" add --cluster {loaded.guest.cluster}"
        )
    return loaded


def detector_of(name: str, guest: LoadedGuest | None = None) -> tuple[Detector, DetectorProfile | None]:
    """Return our controller's policy, or a foreign detector's profile, beside which our controller is off.

    It is off beside a guest, too.
    """
    from gameday.rehearsal.blueprint import Detector  # noqa: PLC0415

    if guest:
        return Detector.OFF, None
    if name in list(Detector):
        return Detector(name), None
    from gameday.detectors.load import load_detector  # noqa: PLC0415

    profile = load_detector(name)
    if profile.name == _OURS:
        return Detector.DEFAULT, None
    return Detector.OFF, profile


def _watching(detector: str, guest: LoadedGuest | None) -> str | None:
    """Return the profile, by its name or file, of the detector that watches; None: ours, nobody, or one without any."""
    if guest:
        return str(guest.profile_file or guest.profile.name) if guest.profile else None
    return None if detector in ("default", "conservative", "off") else detector


def _control_plane(name: str) -> ControlPlane:
    from gameday.rehearsal.blueprint import ControlPlane  # noqa: PLC0415

    try:
        return ControlPlane(name)
    except ValueError:
        raise CommandError(f"--cluster {name!r}: choose one of {', '.join(ControlPlane)}") from None


def _lab_settings(cluster: str, options: LabOptions, defaults: RehearsalSettings | None = None) -> LabSettings | None:
    """Return the lab's settings, None for a cluster that is none; raises CommandError."""
    from gameday.rehearsal.blueprint import ControlPlane  # noqa: PLC0415

    if _control_plane(cluster) is ControlPlane.LAB:
        return options.settings(defaults)
    options.refuse_without_lab()
    wanted = {"dra": "ResourceSlices", "topology": "a topology-aware scheduler"}
    for key, what in wanted.items():
        if defaults and getattr(defaults, key):
            raise CommandError(
                f"the plan wants {what} (rehearsal.{key}), which --cluster {cluster} does not serve:"
                " leave --cluster out, or take out the key"
            )
    return None


def is_repaired(repair: str, *, hands_off: bool = False) -> bool:
    """Return whether the rehearsal has a repairer.

    Args:
        repair: The option's value.
        hands_off: The plan has `recover.by: cluster`.

    Raises:
        CommandError: Nobody has this choice.
    """
    choices = {"on": True, "off": False, "auto": hands_off}
    if repair not in choices:
        raise CommandError(f"--repair {repair!r}: choose one of {', '.join(choices)}")
    return choices[repair]


def hold_outs(nodes: int, *, repair: bool) -> int:
    """Return how many nodes are spares: one in a cluster that is repaired, and has more than two nodes."""
    return 1 if repair and nodes > 2 else 0


def client_nodes_for(plan: Plan) -> int:
    """Return how many nodes for API clients the plan needs."""
    return plan.targets.nodes if plan.fault.runs_on is NodeRole.API_CLIENT else 0


def check_fit(plan: Plan, nodes: int, gpus: int) -> None:
    """Refuse a cluster on which the plan could not hold whatever the chain did."""
    if (plan.qa.floors.gpus or 0) > gpus:
        raise CommandError(
            f"plan {plan.name} wants {plan.qa.floors.gpus} GPUs per node (qa.floors.gpus), and --gpus is {gpus}:"
            " raise --gpus, or lower the plan's"
        )
    if plan.targets.nodes > nodes:
        raise CommandError(
            f"plan {plan.name} aims at {plan.targets.nodes} nodes (targets.nodes), and --nodes is {nodes}:"
            " raise --nodes, or lower the plan's"
        )


def _nodes_at(plan: Plan, scale: str) -> int:
    """Return the nodes that a scale takes at least; refuse one that this machine has too little memory for."""
    from gameday.host.memory import why_too_large  # noqa: PLC0415

    asked = plan.scales[scale]
    if why := why_too_large(asked.memory):
        raise CommandError(f"--scale {scale} of {plan.name} does not fit this machine: {why}", ExitCode.REFUSED)
    return asked.nodes or 1


def _check_memory(nodes: int) -> None:
    """Refuse thousands of nodes that this machine has too little memory for, before anything is started."""
    from gameday.host.memory import why_too_large  # noqa: PLC0415
    from gameday.rehearsal.scrape_pace import LARGE  # noqa: PLC0415

    if nodes > LARGE and (why := why_too_large(nodes * _BYTES_OF_A_NODE)):
        raise CommandError(f"--nodes {nodes} does not fit this machine: {why}; take fewer nodes", ExitCode.REFUSED)


def _file_at(written: LoadedPlan, own: Path, scale: str, folder: Path) -> Path:
    """Write the plan, whose own file is `own`, as it is at a scale into the folder, and return the new file."""
    file = folder / f"{written.of_scale(scale).plan.name}.yaml"
    file.write_text(written.text_at_scale(scale, own.parent), encoding="utf-8")
    return file


def _check_release(plan: Plan) -> None:
    """Refuse a plan before anything is started whose API servers' release is not built."""
    from gameday.errors import ProgramMissingError  # noqa: PLC0415
    from gameday.rehearsal.lab.programs import find_api_server  # noqa: PLC0415

    if release := plan.rehearsal.api_server_release:
        try:
            find_api_server(release)
        except ProgramMissingError as error:
            raise CommandError(str(error), ExitCode.REFUSED) from None


def _set_prefect(home: Path, url: str) -> None:
    from gameday.rehearsal.prefect_server import prefect_environment  # noqa: PLC0415

    home.mkdir(parents=True, exist_ok=True)
    os.environ.update(prefect_environment(home))
    os.environ["PREFECT_API_URL"] = f"{url}/api"


@contextmanager
def _prefect_of(cluster: RehearsalCluster) -> Iterator[None]:
    """Use the cluster's Prefect server, on another port than the one chosen first where that was taken meanwhile."""
    from gameday.cli.prefect_client import api_url, own_server  # noqa: PLC0415

    with api_url(f"{cluster.urls['prefect']}/api"), own_server(cluster.child("prefect")):
        yield


def _print_how_to(out: Console, cluster: RehearsalCluster) -> None:
    profile = shlex.quote(str(cluster.profile))
    lines = [
        "the cluster is up; Ctrl-C ends it. In another terminal:",
        f"  export KUBECONFIG={shlex.quote(str(cluster.admin_kubeconfig))}",
        f"  export PREFECT_API_URL={cluster.urls['prefect']}/api",
        "  kubectl get nodes",
        f"  gameday run {DEFAULT_PLAN} --profile {profile}",
    ]
    lines += [f"  {name:<13} {url}" for name, url in cluster.urls.items()]
    out.print("\n".join(lines), soft_wrap=True)
