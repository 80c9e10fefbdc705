"""Plans for scripted game-days, as documents that a test changes."""

from __future__ import annotations

import json
from typing import Any

from gameday.plan.load import LoadedPlan
from tests.support.runs import loaded_plan

Document = dict[str, Any]
QUICK: Document = {
    "apiVersion": "gameday/v1",
    "name": "quick",
    "title": "A quick game-day",
    "hypothesis": "The node is quarantined and comes back.",
    "fault": {"type": "xid", "xid": 95, "hold": "30s"},
    "targets": {"names": ["gpu-node-1"]},
    "baseline": {"window": "6s", "log_path_within": "10s"},
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
JOB: Document = {"namespace": "training", "selector": {"app": "train"}, "resumes_within": "10s"}


def changed(plan: Document, path: str, value: object) -> Document:
    """Return the plan with one dotted key set."""
    copy: Document = json.loads(json.dumps(plan))
    *parents, last = path.split(".")
    inner = copy
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = value
    return copy


def without_repair(fault: Document) -> Document:
    """Return the plan with another fault, after which no node is repaired."""
    return changed(changed(QUICK, "fault", {"hold": "60s", **fault}), "recover.remediation", "none")


def loaded(plan: Document) -> LoadedPlan:
    """Return the plan as if it were read from a file."""
    return loaded_plan(plan)
