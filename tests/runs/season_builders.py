"""Plans and nodes of a season, in code."""

from __future__ import annotations

import json
from typing import Any

from gameday.faults.registry import parameter_models
from gameday.plan.load import parse_plan
from gameday.runs.assignment import FitNode
from gameday.runs.plans import ChosenPlan


def chosen(
    name: str,
    *,
    running_pods: str = "any",
    alert_within: str = "10s",
    arms: object = None,
    rehearsal: object = None,
    **targets: Any,
) -> ChosenPlan:
    content: dict[str, Any] = {
        "apiVersion": "gameday/v1",
        "name": name,
        "title": name,
        "hypothesis": "Somebody notices.",
        "fault": {"type": "xid", "xid": 95},
        "targets": targets,
        "guardrails": {"max_nodes": targets.get("nodes", 1)},
        "expect": {
            "alerts": [{"name": "GPUXidCritical", "within": alert_within}],
            "workloads": {"running_pods": running_pods},
        },
    }
    content |= {key: value for key, value in (("arms", arms), ("rehearsal", rehearsal)) if value}
    return ChosenPlan(name, parse_plan(json.dumps(content).encode(), f"{name}.yaml", parameter_models()))


def nodes(count: int, *, busy: bool = True, **labels: str) -> list[FitNode]:
    return [FitNode(f"node-{number}", labels, busy) for number in range(1, count + 1)]
