"""The signals that can show a fault, and those that a plan and its detector's profile expect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from gameday.detectors.facts import rule_for
from gameday.detectors.models import DetectorProfile
from gameday.faults.base import Layer
from gameday.faults.registry import fault_for
from gameday.plan.models import Plan

# Words with which faults describe a series in `seen_by`: it moves, ends or stays the same.
_A_SERIES = re.compile(r"DCGM_FI_|dcgm-exporter|DCGM: the GPU's series|alerts on (?:absent series|values)")
_A_CANARY = re.compile(r"\bcanary\b", re.IGNORECASE)


class Signal(StrEnum):
    """The signals in the order of the chain, the nearest to the fault first."""

    LOG = "log"
    """A line in the log store."""
    METRIC = "metric"
    """A series in Prometheus that moves, ends or stays the same."""
    ALERT = "alert"
    CONDITION = "condition"
    TAINT = "taint"
    """The node out of service, by a taint or by a cordon."""
    EVENT = "event"
    """A Kubernetes Event about the node."""
    ALLOCATABLE = "allocatable"
    CANARY = "canary"
    """A canary job that runs slower."""
    SAID = "said"
    """A guest's own word in its output: a detector need not write anything to Kubernetes."""


def expects_a_word(plan: Plan, detector: DetectorProfile | None) -> bool:
    """Return True if a guest that speaks should say something about the plan's fault, because its profile sees it."""
    rule = rule_for(detector, plan.fault) if detector else None
    return rule is not None and not rule.cannot_see


def expected_signals(plan: Plan, detector: DetectorProfile | None) -> Mapping[Signal, bool]:
    """Map each signal to True if the plan's fault should cause it while this detector watches. Pure.

    The fault's own `layer` and `seen_by` decide about log, metric and canary; the plan and the detector's profile
    decide about the rest. Without a profile, or if it says nothing about the fault, only the plan counts. A guest's
    word is expected by `expects_a_word`. An alert needs a metric, so an expected alert makes the metric expected, too.
    """
    fault, expect = fault_for(plan.fault), plan.expect
    rule = rule_for(detector, plan.fault) if detector else None
    quiet = expect.stays_schedulable_for is not None
    return {
        Signal.LOG: fault.layer in (Layer.KERNEL_LOG, Layer.DRIVER),
        Signal.METRIC: bool(expect.alerts) or any(map(_A_SERIES.search, fault.seen_by)),
        Signal.ALERT: bool(expect.alerts),
        Signal.CONDITION: bool(expect.conditions or (rule and rule.conditions)),
        Signal.TAINT: not quiet and bool(expect.expects_quarantine or (rule and rule.quarantines)),
        Signal.EVENT: bool(expect.events or (rule and rule.events)),
        Signal.ALLOCATABLE: bool(expect.allocatable_falls or (rule and rule.allocatable_falls)),
        Signal.CANARY: any(map(_A_CANARY.search, fault.seen_by)),
    }
