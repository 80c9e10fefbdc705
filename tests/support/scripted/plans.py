"""Plans for scripted game-days, as documents that a test changes."""

from __future__ import annotations

from typing import Any

from gameday.plan.load import LoadedPlan
from tests.support import plans
from tests.support.plans import changed
from tests.support.runs import loaded_plan

Document = dict[str, Any]
QUICK: Document = changed(changed(plans.QUICK, "targets", {"names": ["gpu-node-1"]}), "baseline.window", "6s")
JOB: Document = {"namespace": "training", "selector": {"app": "train"}, "resumes_within": "10s"}


def without_repair(fault: Document) -> Document:
    """Return the plan with another fault, after which no node is repaired."""
    return changed(changed(QUICK, "fault", {"hold": "60s", **fault}), "recover.remediation", "none")


def loaded(plan: Document) -> LoadedPlan:
    """Return the plan as if it were read from a file."""
    return loaded_plan(plan)
