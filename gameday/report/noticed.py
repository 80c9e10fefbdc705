"""Decide whether the cluster noticed the fault by itself."""

from __future__ import annotations

from gameday.checks.verdict import Status, Verdict
from gameday.history.events import FaultInjected
from gameday.report.run_folder import RunFolder
from gameday.report.summary import Noticed

SIGNAL_PHRASES = {
    "alert-fires": ("alert firing", "no alert fired"),
    "taint-set": ("node tainted", "the node was not tainted"),
    "device-tainted": ("device tainted", "no device was tainted"),
    "cordoned": ("node cordoned", "the node was not cordoned"),
    "condition-set": ("condition set", "no condition was set"),
    "label-set": ("label set", "no label was set"),
    "event-written": ("Event written", "no Event was written"),
    "allocatable-falls": ("fewer GPUs offered", "no GPU was withdrawn"),
}
"""The checks on signals that a cluster gives by itself: the phrase for a signal that came, and for one that did not."""


def signal_verdicts(run: RunFolder) -> list[Verdict]:
    """Return the verdicts on the signals that the plan expects the cluster to give by itself, and the flow asked."""
    return [one for one in run.verdicts if one.check in SIGNAL_PHRASES and one.status is not Status.NOT_ASKED]


def noticed(run: RunFolder) -> Noticed:
    """Fold the verdicts on the cluster's signals into one answer. A late signal counts as noticed."""
    asked = signal_verdicts(run)
    if not asked:
        return Noticed.NOT_ASKED if run.plan else Noticed.UNKNOWN
    if not run.history.of(FaultInjected):
        return Noticed.UNKNOWN
    seen = [verdict for verdict in asked if verdict.seconds is not None]
    missed = [verdict for verdict in asked if verdict.seconds is None and verdict.status is Status.BROKEN]
    if len(seen) + len(missed) < len(asked) and not (seen and missed):
        return Noticed.UNKNOWN
    return Noticed.YES if not missed else Noticed.PARTLY if seen else Noticed.NO
