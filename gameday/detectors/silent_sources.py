"""The sources of alert rules that do not show a plan's fault, by where it enters and which detector watches."""

from __future__ import annotations

from collections.abc import Iterator

from gameday.detectors.facts import rule_for
from gameday.detectors.models import DetectorProfile
from gameday.faults.base import Layer
from gameday.faults.registry import fault_for
from gameday.faults.xid import XidParameters
from gameday.plan.load import SilentSource
from gameday.plan.models import Plan
from gameday.values.alert_families import FAULTY_TAINT, AlertSource


def silent_sources(plan: Plan, profile: DetectorProfile | None) -> Iterator[SilentSource]:
    """Yield the sources that stay silent.

    Args:
        plan: The plan with its fault.
        profile: The foreign detector that watches; None if it is our own controller, or unknown.
    """
    layer, name = fault_for(plan.fault).layer, plan.fault.type
    if layer is Layer.KERNEL_LOG and not (isinstance(plan.fault, XidParameters) and plan.fault.is_read_by_dcgm):
        why = f"fault {name} is a line in the kernel log, of which DCGM sees nothing: only dcgm_field enters there"
        yield SilentSource(AlertSource.DCGM, why, certain=True)
    if layer is Layer.DCGM_CACHE:
        why = f"fault {name} writes no line into the kernel log, and our node-health controller reads nothing else"
        yield SilentSource(AlertSource.CONTROLLER, why, certain=True)
    rule = rule_for(profile, plan.fault) if profile else None
    if profile is None or rule is None:
        return
    if not rule.conditions:
        why = f"detector {profile.name} sets no condition for this fault, by its profile"
        yield SilentSource(AlertSource.CONDITIONS, why, certain=False)
    if not any(taint.key == FAULTY_TAINT for taint in rule.taints):
        why = f"detector {profile.name} sets no taint {FAULTY_TAINT} for this fault, by its profile"
        yield SilentSource(AlertSource.TAINTS, why, certain=False)
