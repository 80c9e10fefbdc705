from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gameday.faults.registry import parameter_models
from gameday.history.journal import Journal
from gameday.plan.load import LoadedPlan, parse_plan
from gameday.run.connections import Servers
from gameday.run.run import Run
from tests.cluster.kubernetes.conftest import reaper, runner, server, world
from tests.cluster.kubernetes.world import World, unique

__all__ = ["reaper", "runner", "server", "world"]


def plan(running_pods: str = "any", **targets: Any) -> LoadedPlan:
    content: dict[str, Any] = {
        "apiVersion": "gameday/v1",
        "name": "quick",
        "title": "A quick game-day",
        "hypothesis": "The node is quarantined and comes back.",
        "fault": {"type": "xid", "xid": 95},
        "targets": targets,
        "guardrails": {"max_nodes": targets.get("nodes", 1)},
        "expect": {
            "alerts": [{"name": "GPUXidCritical", "within": "10s"}],
            "taints": [{"key": "trainy.konduktor.ai/faulty", "value": "true", "within": "10s"}],
            "workloads": {"running_pods": running_pods},
        },
    }
    return parse_plan(json.dumps(content).encode(), "plan.yaml", parameter_models())


@pytest.fixture
def new_run(world: World, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Runs whose only server is the API server; nothing of them is opened yet."""
    runs: list[Run] = []

    def make(running_pods: str = "any", **targets: Any) -> Run:
        id = unique("run")
        journal = Journal(tmp_path / f"{id}.jsonl")
        profile = world.profile(world.kubeconfig("gameday-runner"))
        runs.append(Run(id, tmp_path, plan(running_pods, **targets), profile, journal))
        runs[-1].opened.servers = Servers(profile)
        return runs[-1]

    yield make
    for run in runs:
        run.stop_following()
        run.servers.close()
        run.journal.close()
