"""The meaning of the values of options for a virtual cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.values.nodes import NodeRole

if TYPE_CHECKING:
    from gameday.detectors.models import DetectorProfile
    from gameday.plan.models import Plan
    from gameday.plan.rehearsal import RehearsalSettings
    from gameday_rehearsal.blueprint import ControlPlane, Detector
    from gameday_rehearsal.cli.lab_options import LabOptions
    from gameday_rehearsal.guests.load import LoadedGuest
    from gameday_rehearsal.lab.settings import LabSettings

_OURS = "gameday"
"""The profile of our node-health controller, which runs here itself and needs no stand-in."""


def guest_of(value: str | None, cluster: str, detector: str | None) -> LoadedGuest | None:
    """Return the guest of `--guest`, or None without one.

    Raises:
        CommandError: It cannot watch on this control plane, `--detector` was given as well, or there is no such
            program.
        DocumentError: Its file cannot be used.
    """
    from gameday.errors import ProgramMissingError
    from gameday_rehearsal.guests.load import load_guest

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
    from gameday_rehearsal.blueprint import Detector

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
    from gameday_rehearsal.blueprint import ControlPlane

    try:
        return ControlPlane(name)
    except ValueError:
        raise CommandError(f"--cluster {name!r}: choose one of {', '.join(ControlPlane)}") from None


def lab_settings_of(cluster: str, options: LabOptions, defaults: RehearsalSettings | None = None) -> LabSettings | None:
    """Return the lab's settings, or None for a cluster that is not a lab. Raises CommandError."""
    from gameday_rehearsal.blueprint import ControlPlane

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
