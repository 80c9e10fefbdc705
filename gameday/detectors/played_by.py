"""A plan as a guest plays it: with the guest's expected answer in place of another detector's."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from gameday.detectors.facts import facts, rule_for
from gameday.detectors.models import DetectorProfile
from gameday.detectors.resolve import consulted, expectations_of, written_fields
from gameday.expect.workloads import ExpectedWorkloads
from gameday.plan.load import LoadedPlan
from gameday.plan.models import Plan
from gameday.values.alert_families import is_set_off_by_detector
from gameday.values.nodes import NodeRole

_QUIET_FOR = timedelta(seconds=30)
"""Time to watch if the guest's answer is unknown; a profile's own default."""
_OF_A_DETECTOR = frozenset(
    {
        "taints",
        "cordoned",
        "conditions",
        "labels",
        "labels_left",
        "events",
        "allocatable_falls",
        "stays_schedulable_for",
    }
)


def why_not_played_by_guest(plan: Plan) -> str:
    """Return why a guest's season leaves out a plan; empty if it does not."""
    if plan.fault.runs_on is NodeRole.API_CLIENT:
        return "its fault leaves every GPU node whole, so that a detector has nothing to notice"
    if plan.recover.is_hands_off:
        return "the cluster is to repair the node (`recover.by: cluster`), and beside a guest nobody does"
    return "it compares arms, which a guest's season does not" if plan.arms else ""


def played_by(loaded: LoadedPlan, name: str, profile: DetectorProfile | None) -> LoadedPlan:
    """Return a plan with the expectations of the detector that watches, in place of those of another one.

    What needs no detector stays: alerts on dcgm-exporter's series, canaries, running pods. If the detector should do
    nothing, or if nobody has written down its answers, the node is watched for a while, as a negative control.

    Args:
        loaded: A plan for which `why_not_played_by_guest` is empty.
        name: The detector that the played plan names: its profile's name or file, else the guest's own name.
        profile: The detector's profile; None if nobody has written one.
    """
    plan = loaded.plan
    rule = rule_for(profile, plan.fault) if profile else None
    found = expectations_of(profile, rule, facts(plan.fault)) if profile and rule else {}
    if not found:
        found = {"stays_schedulable_for": profile.quiet_for if profile else _QUIET_FOR}
    kept: dict[str, Any] = {key: one for key, one in written_fields(plan.expect).items() if key not in _OF_A_DETECTOR}
    kept["alerts"] = tuple(alert for alert in plan.expect.alerts if not is_set_off_by_detector(alert.name))
    if plan.expect.workloads.running_pods == "evicted":
        kept["workloads"] = ExpectedWorkloads()
    expect = type(plan.expect)(**kept | found | {"allow_other_alerts": True})
    played = Plan(**written_fields(plan) | {"detector": name, "expect": expect})
    whole = replace(loaded, plan=played, scales={})
    return replace(whole, from_detector=consulted(profile, rule, tuple(found))) if profile else whole
