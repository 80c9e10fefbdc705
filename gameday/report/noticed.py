"""Decide whether the cluster noticed the fault by itself."""

from __future__ import annotations

from datetime import timedelta

from gameday.checks.facts import first_fault
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import FaultInjected, TaintSeen
from gameday.report.run_folder import RunFolder
from gameday.report.summary import Noticed
from gameday.values.dated import CLOCK_TOLERANCE_S
from gameday.values.nodes import NODE_LIFECYCLE_DOMAIN

SIGNAL_PHRASES = {
    "alert-fires": ("alert firing", "the expected alert did not fire"),
    "taint-set": ("node tainted", "the node was not tainted"),
    "device-tainted": ("device tainted", "no device was tainted"),
    "cordoned": ("node cordoned", "the node was not cordoned"),
    "condition-set": ("condition set", "no condition was set"),
    "label-set": ("label set", "no label was set"),
    "event-written": ("Event written", "no Event was written"),
    "allocatable-falls": ("fewer GPUs offered", "no GPU was withdrawn"),
}
"""The checks on signals that a cluster gives by itself: a phrase for a signal that came, and one for a missing one."""


def signal_verdicts(run: RunFolder) -> list[Verdict]:
    """Return the verdicts on signals that the plan expects from the cluster itself, and that the flow asked about."""
    return [one for one in run.verdicts if one.check in SIGNAL_PHRASES and one.status is not Status.NOT_ASKED]


def first_taint(run: RunFolder, node: str | None) -> TaintSeen | None:
    """Return the first taint after the fault that the plan names, else the first with another key, else None.

    A detector that the plan does not name also taints. Taints of the node lifecycle controller are left out.
    """
    fault = first_fault(run.history, node)
    if fault is None:
        return None
    named = {taint.key for taint in run.plan.expect.taints} if run.plan else set()
    begin = fault[1].written_at - timedelta(seconds=CLOCK_TOLERANCE_S)
    came = [
        seen
        for _, seen in run.history.about(TaintSeen, node)
        if seen.present
        and not seen.at_baseline
        and seen.at >= begin
        and not seen.taint.key.startswith(NODE_LIFECYCLE_DOMAIN)
    ]
    return min(came, key=lambda seen: (seen.taint.key not in named, seen.at), default=None)


def noticed(run: RunFolder) -> Noticed:
    """Combine the verdicts on the cluster's signals into one answer. A late signal counts as noticed."""
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
