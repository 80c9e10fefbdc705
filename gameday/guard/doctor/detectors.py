"""The detectors: our controller, a rehearsal's guest, and those with a profile that does not fit the plan."""

from __future__ import annotations

from collections.abc import Iterator

from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.guard.rule_series import CONTROLLER_METRICS
from gameday.observe.guest_watch import guest_trouble
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import Targets
from gameday.values.nodes import NodeRole

_OUR_DETECTOR = "gameday"  # the profile of our node-health controller
_CONTROLLER_METRIC = f"{CONTROLLER_METRICS}gpu_fault_active"


def check_detectors(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    """Check that the detector watches the targets, as far as it shows; yield every warning about it and this plan.

    Raises:
        AdapterError: The guest's server, or Prometheus, does not answer.
    """
    if run.plan.expect.taints and not run.profile.guest and not foreign_detector(run):
        yield _controller(run)
    if run.profile.guest and targets and run.plan.fault.runs_on is NodeRole.GPU:
        why, name = guest_trouble(run.profile.guest, [target.node for target in targets]), run.profile.guest.name
        fix = "its output is in the rehearsal's folder, guests/" if why else ""
        yield Prerequisite("detectors", f"guest {name} watches the targets", not why, why, fix)
    for warning in run.record.loaded.detector_warnings:
        yield Prerequisite("detectors", f"{warning.detector} suits this plan", None, warning.what, warning.fix)


def _controller(run: ReadOnlyRun) -> Prerequisite:
    """Check by its metrics that our controller, which has to set the taint, is there."""
    exposed = run.servers.prometheus.exposes(_CONTROLLER_METRIC)
    said = {
        True: f"a scraped target has {_CONTROLLER_METRIC}",
        None: "this Prometheus keeps no metadata of targets, so that its metrics do not show",
        False: f"no scraped target has {_CONTROLLER_METRIC}",
    }
    # On a real cluster it may run unscraped.
    ok = True if exposed else False if exposed is False and run.profile.rehearsal else None
    return Prerequisite(
        "detectors", "the node-health controller watches", ok, said[exposed], "" if ok else controller_fix(run)
    )


def controller_fix(run: ReadOnlyRun) -> str:
    """Return the next step if our controller's metrics are missing."""
    guest = run.profile.guest
    detector = f"guest {guest.name}" if guest else foreign_detector(run)
    if run.profile.rehearsal:
        return (
            f"expect an alert of {detector}, or rehearse with our controller: --detector default"
            if detector
            else "nobody watches this rehearsal: start it without --detector off"
        )
    return (
        "kubectl apply -k deploy/node-health, and let Prometheus scrape it (deploy/node-health/podmonitor); or name "
        "the detector that watches here: detector in the cluster profile"
    )


def foreign_detector(run: ReadOnlyRun) -> str:
    """Return the detector that the plan or the cluster profile names; empty if it is our controller."""
    named = run.record.loaded.from_detector
    detector = named.detector if named else run.profile.detector
    return "" if detector == _OUR_DETECTOR else f"detector {detector}"
