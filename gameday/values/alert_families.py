"""Alert rules that mean the same fault, one for each source of series.

A cluster has some of these sources and not others. docs/alerts.md has the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

FAULTY_TAINT = "trainy.konduktor.ai/faulty"
"""The taint that the alert NodeQuarantined reads."""


class AlertSource(StrEnum):
    """The exporter that a rule reads, and what it needs."""

    CONTROLLER = "our node-health controller"
    DCGM = "dcgm-exporter, for what DCGM sees"
    CONDITIONS = "kube-state-metrics, for a detector that sets conditions"
    TAINTS = f"kube-state-metrics, for a detector that taints {FAULTY_TAINT}"


class AlertMeaning(StrEnum):
    """A fault that each source has an alert rule for."""

    GPU_FELL_OFF_THE_BUS = "gpu-fell-off-the-bus"
    XID_CRITICAL = "xid-critical"
    """An Xid that asks for a reset, a reboot or support."""
    XID_RECORDED = "xid-recorded"
    """An Xid that asks for nothing by itself."""
    SXID_FATAL = "sxid-fatal"
    SXID_NON_FATAL = "sxid-non-fatal"


@dataclass(frozen=True)
class FamilyRule:
    """A shipped alert rule for a fault."""

    alert: str
    source: AlertSource
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the alert for exactly this fault, if the rule also fires for others."""

    def __str__(self) -> str:
        labels = ", ".join(f"{name}: {value!r}" for name, value in self.labels)
        return f"{self.alert} ({'; '.join(filter(None, (f'labels {{{labels}}}' if labels else '', self.source)))})"


_BY_KUBERNETES = (
    FamilyRule("NodeGPUConditionFailed", AlertSource.CONDITIONS),
    FamilyRule("NodeQuarantined", AlertSource.TAINTS),
)
MEANINGS: Mapping[AlertMeaning, tuple[FamilyRule, ...]] = {
    AlertMeaning.GPU_FELL_OFF_THE_BUS: (
        FamilyRule("GPUFellOffTheBus", AlertSource.CONTROLLER),
        FamilyRule("GPUXidHardware", AlertSource.DCGM, (("code", "79"),)),
        *_BY_KUBERNETES,
    ),
    AlertMeaning.XID_CRITICAL: (
        FamilyRule("GPUXidCritical", AlertSource.CONTROLLER),
        FamilyRule("GPUXidHardware", AlertSource.DCGM),
        *_BY_KUBERNETES,
    ),
    AlertMeaning.XID_RECORDED: (
        FamilyRule("GPUXidRecorded", AlertSource.CONTROLLER),
        FamilyRule("GPUXidReported", AlertSource.DCGM),
    ),
    AlertMeaning.SXID_FATAL: (
        FamilyRule("NVSwitchSXidFatal", AlertSource.CONTROLLER),
        FamilyRule("NVSwitchSXidFatalReported", AlertSource.DCGM),
        *_BY_KUBERNETES,
    ),
    AlertMeaning.SXID_NON_FATAL: (
        FamilyRule("NVSwitchSXidNonFatal", AlertSource.CONTROLLER),
        FamilyRule("NVSwitchSXidNonFatalReported", AlertSource.DCGM),
    ),
}
"""The rules of each fault."""


def rule_of_source(meaning: AlertMeaning, source: AlertSource) -> FamilyRule | None:
    """Return the source's rule for the fault; None if there is none."""
    return next((rule for rule in MEANINGS[meaning] if rule.source is source), None)


def others_of_meaning(alert: str) -> list[FamilyRule]:
    """Return the other rules with the same meaning as this alert; empty for an alert of no family."""
    found: dict[str, FamilyRule] = {}
    for rules in MEANINGS.values():
        if any(rule.alert == alert for rule in rules):
            for rule in rules:
                found.setdefault(rule.alert, rule)
    return [rule for name, rule in found.items() if name != alert]


def sources_of(alert: str) -> set[AlertSource]:
    """Return the sources that the rule reads; empty for an alert of no family."""
    return {rule.source for rules in MEANINGS.values() for rule in rules if rule.alert == alert}


def fires_until_returned(alert: str) -> bool:
    """Return True if the alert lasts as long as the quarantine, which a game-day ends only when it returns the node."""
    return AlertSource.TAINTS in sources_of(alert)


def is_about_the_node(alert: str) -> bool:
    """Return True if the rule is only about a detector's marks on a node: the taint, or a condition."""
    return bool(sources_of(alert)) and sources_of(alert) <= {AlertSource.TAINTS, AlertSource.CONDITIONS}


_OF_OUR_CONTROLLER = frozenset({"KernelLogPipelineSilent", "NodeRepairsWithheld"})
"""Alerts of no family that read our node-health controller's own metrics."""


def is_set_off_by_detector(alert: str) -> bool:
    """Return True if the rule reads what a detector sets: a taint, a condition, or our controller's own metrics."""
    if alert in _OF_OUR_CONTROLLER:
        return True
    return bool(sources_of(alert)) and AlertSource.DCGM not in sources_of(alert)
