"""The shipped plans, read once for all tests of a process, and a quick one as a document that a test changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from gameday.faults.registry import parameter_models
from gameday.plan.catalogue import load_shipped
from gameday.plan.models import Plan


@cache
def shipped() -> Mapping[str, Plan]:
    """Return every shipped plan by its name, in the order of the names; to read them all takes a second."""
    return MappingProxyType({one.plan.name: one.plan for one in load_shipped(parameter_models())})


QUICK: dict[str, Any] = {
    "apiVersion": "gameday/v1",
    "name": "quick",
    "title": "A quick game-day",
    "hypothesis": "The node is quarantined and comes back.",
    "fault": {"type": "xid", "xid": 95, "hold": "30s"},
    "baseline": {"window": "1s", "log_path_within": "10s"},
    "expect": {
        "alerts": [{"name": "GPUXidCritical", "within": "20s", "resolves_within": "30s"}],
        "taints": [{"key": "trainy.konduktor.ai/faulty", "value": "true", "within": "20s"}],
        "workloads": {"running_pods": "kept", "canary_kept_off_for": "1s", "resubmitted_within": "30s"},
        "allow_other_alerts": False,
    },
    "recover": {"remediation": "gpu-reset", "within": "30s"},
    "qa": {"within": "30s", "burn_in": None},
    "guardrails": {"max_duration": "3m"},
}
STATE = "foreign.example/state"
HOPS: dict[str, Any] = {
    "quarantined": {"within": "20s"},
    "repair_begun": {"within": "10s", "signs": [{"label": {"key": STATE, "values": ["repairing"]}}]},
    "repaired": {"within": "60s", "kinds": ["reboot"]},
    "ready": {"within": "30s"},
    "validated": {"within": "30s", "signs": [{"label": {"key": STATE, "values": ["validated"]}}]},
    "returned": {"within": "30s"},
}
"""The hops of a repair by a cluster that shows its state in a label."""


def changed(plan: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Return the plan with one dotted key set."""
    copy = json.loads(json.dumps(plan))
    *parents, last = path.split(".")
    inner = copy
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = value
    return copy
