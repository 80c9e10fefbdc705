"""The detectors beside ours: the guest of a rehearsal, and those whose profile does not suit the plan."""

from __future__ import annotations

from collections.abc import Iterator

from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.observe.guest_watch import guest_trouble
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import Targets
from gameday.values.nodes import NodeRole


def check_detectors(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    """Yield whether the guest watches the targets, and each warning about a detector and this plan.

    Raises:
        AdapterError: The guest's server does not answer.
    """
    if run.profile.guest and targets and run.plan.fault.runs_on is NodeRole.GPU:
        why, name = guest_trouble(run.profile.guest, [target.node for target in targets]), run.profile.guest.name
        fix = "its output is in the rehearsal's folder, guests/" if why else ""
        yield Prerequisite("detectors", f"guest {name} watches the targets", not why, why, fix)
    for warning in run.record.loaded.detector_warnings:
        yield Prerequisite("detectors", f"{warning.detector} suits this plan", None, warning.what, warning.fix)
