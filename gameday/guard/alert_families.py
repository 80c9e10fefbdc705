"""Alert rules that mean the same fault, by the source whose series they read.

A cluster has some of these sources and not others: our node-health controller, dcgm-exporter, kube-state-metrics beside
a detector that sets conditions or taints. docs/alerts.md has the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class FamilyRule:
    """A shipped alert rule, as one of those that mean a fault."""

    alert: str
    source: str
    """The exporter whose series the rule reads, and what has to stand behind it."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the alert for this very fault, where the rule also fires for others."""

    def __str__(self) -> str:
        labels = ", ".join(f"{name}: {value!r}" for name, value in self.labels)
        return f"{self.alert} ({'; '.join(filter(None, (f'labels {{{labels}}}' if labels else '', self.source)))})"


CONTROLLER = "our node-health controller"
_DCGM = "dcgm-exporter, for what DCGM sees"
_CONDITION = "kube-state-metrics, for a detector that sets conditions"
_TAINT = "kube-state-metrics, for a detector that taints trainy.konduktor.ai/faulty"
_BY_KUBERNETES = (FamilyRule("NodeGPUConditionFailed", _CONDITION), FamilyRule("NodeQuarantined", _TAINT))

MEANINGS: Mapping[str, tuple[FamilyRule, ...]] = {
    "A GPU fell off the bus": (
        FamilyRule("GPUFellOffTheBus", CONTROLLER),
        FamilyRule("GPUXidHardware", _DCGM, (("code", "79"),)),
        *_BY_KUBERNETES,
    ),
    "An Xid that asks for a reset, a reboot or support": (
        FamilyRule("GPUXidCritical", CONTROLLER),
        FamilyRule("GPUXidHardware", _DCGM),
        *_BY_KUBERNETES,
    ),
    "An Xid that asks for nothing by itself": (
        FamilyRule("GPUXidRecorded", CONTROLLER),
        FamilyRule("GPUXidReported", _DCGM),
    ),
    "A fatal SXid of an NVSwitch": (
        FamilyRule("NVSwitchSXidFatal", CONTROLLER),
        FamilyRule("NVSwitchSXidFatalReported", _DCGM),
        *_BY_KUBERNETES,
    ),
    "A non-fatal SXid of an NVSwitch": (
        FamilyRule("NVSwitchSXidNonFatal", CONTROLLER),
        FamilyRule("NVSwitchSXidNonFatalReported", _DCGM),
    ),
}
"""The rules of each fault."""


def others_of_meaning(alert: str) -> list[FamilyRule]:
    """Return the other rules that mean what this alert means; empty for an alert of no family."""
    found: dict[str, FamilyRule] = {}
    for rules in MEANINGS.values():
        if any(rule.alert == alert for rule in rules):
            for rule in rules:
                found.setdefault(rule.alert, rule)
    return [rule for name, rule in found.items() if name != alert]
