"""Options for a virtual cluster, the same for every command that starts one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.rehearsal.nodes import MAX_NODES
from gameday.values.nodes import NodeRole

if TYPE_CHECKING:
    from gameday.cli.lab_options import LabOptions
    from gameday.detectors.models import DetectorProfile
    from gameday.guests.load import LoadedGuest
    from gameday.plan.models import Plan
    from gameday.plan.rehearsal import RehearsalSettings
    from gameday.rehearsal.blueprint import ControlPlane, Detector
    from gameday.rehearsal.lab.settings import LabSettings

DEFAULT_DETECTOR = "default"
_OURS = "gameday"
"""The profile of our node-health controller, which runs here itself and needs no stand-in."""

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
    help="Control plane: embedded (a stand-in, starts in a second), lab (Kubernetes' own; see `make lab`).",
)
Cluster = Annotated[str, _CLUSTER]
PlansCluster = Annotated[str | None, _CLUSTER]
"""The same if a plan may choose (`rehearsal.cluster`)."""
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


def guest_of(value: str | None, cluster: str, detector: str | None) -> LoadedGuest | None:
    """Return the guest of `--guest`, or None without one.

    Raises:
        CommandError: It cannot watch on this control plane, `--detector` was given as well, or there is no such
            program.
        DocumentError: Its file cannot be used.
    """
    from gameday.errors import ProgramMissingError
    from gameday.guests.load import load_guest

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
    """Return our controller's policy, or another detector's profile, with our controller off.

    The controller is off beside a guest, too. Raises DocumentError for an unknown detector, or an unusable file.
    """
    from gameday.rehearsal.blueprint import Detector

    if guest:
        return Detector.OFF, None
    if name in list(Detector):
        return Detector(name), None
    from gameday.detectors.load import find_detector, read_detector

    profile = read_detector(find_detector(name, others=list(Detector)))
    if profile.name == _OURS:
        return Detector.DEFAULT, None
    return Detector.OFF, profile


def watching_profile(detector: str, guest: LoadedGuest | None) -> str:
    """Return the profile, by its name or file, of the detector that watches; ours for one without any."""
    if guest:
        return str(guest.profile_file or guest.profile.name) if guest.profile else _OURS
    return _OURS if detector in ("default", "conservative", "off") else detector


def control_plane_of(name: str) -> ControlPlane:
    """Return the control plane of this name. Raises CommandError."""
    from gameday.rehearsal.blueprint import ControlPlane

    try:
        return ControlPlane(name)
    except ValueError:
        raise CommandError(f"--cluster {name!r}: choose one of {', '.join(ControlPlane)}") from None


def lab_settings_of(cluster: str, options: LabOptions, defaults: RehearsalSettings | None = None) -> LabSettings | None:
    """Return the lab's settings, or None for a cluster that is not a lab. Raises CommandError."""
    from gameday.rehearsal.blueprint import ControlPlane

    if control_plane_of(cluster) is ControlPlane.LAB:
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
    """Return True if the rehearsal has a repairer.

    Args:
        repair: The option's value.
        hands_off: The plan has `recover.by: cluster`.

    Raises:
        CommandError: There is no such choice.
    """
    choices = {"on": True, "off": False, "auto": hands_off}
    if repair not in choices:
        raise CommandError(f"--repair {repair!r}: choose one of {', '.join(choices)}")
    return choices[repair]


def hold_outs(nodes: int, *, repair: bool) -> int:
    """Return the number of spare nodes: one in a cluster that is repaired and has more than two nodes, else none."""
    return 1 if repair and nodes > 2 else 0


def client_nodes_for(plan: Plan) -> int:
    """Return the number of nodes for API clients that the plan needs."""
    return plan.targets.nodes if plan.fault.runs_on is NodeRole.API_CLIENT else 0
