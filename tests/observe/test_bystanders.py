"""Nodes that are no targets: what comes to them is noted, and what Kubernetes itself does there is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from gameday.cluster.list_watch import ADDED, DELETED, MODIFIED
from gameday.history.events import BystanderChanged
from gameday.observe.bystanders import _Changes
from gameday.run.record import RunRecord
from gameday.run.run import Run
from tests.guard.observations import profile
from tests.support.runs import fake_run, quick_plan


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    record = RunRecord("r1", tmp_path, quick_plan(), None)
    yield fake_run(record, profile())
    record.journal.close()


def node(name: str = "other", taints: tuple[str, ...] = (), *, cordoned: bool = False, **conditions: str) -> Any:
    return client.V1Node(
        metadata=client.V1ObjectMeta(name=name, resource_version="1", labels={}, annotations={}),
        spec=client.V1NodeSpec(
            unschedulable=cordoned or None, taints=[client.V1Taint(key=key, effect="NoSchedule") for key in taints]
        ),
        status=client.V1NodeStatus(
            conditions=[client.V1NodeCondition(type=name, status=status) for name, status in conditions.items()],
            allocatable={},
        ),
    )


def noted(run: Run) -> list[tuple[str, str, bool]]:
    return [(one.what, one.value, one.new_condition) for one in run.history().of(BystanderChanged)]


def test_taint_cordon_and_conditions_are_noted(run: Run) -> None:
    changes = _Changes(run, frozenset())
    changes.take(ADDED, node(taints=("before",), Disk="False"))
    changes.take(MODIFIED, node(taints=("before", "faulty"), cordoned=True, Disk="True", Gpu="False"))
    assert noted(run) == [
        ("taint", "faulty:NoSchedule", False),
        ("cordon", "unschedulable", False),
        ("condition", "Disk=True", False),
        ("condition", "Gpu=False", True),
    ]


def test_what_kubernetes_does_itself_is_not_noted(run: Run) -> None:
    changes = _Changes(run, frozenset())
    changes.take(ADDED, node(Ready="True"))
    changes.take(MODIFIED, node(taints=("node.kubernetes.io/unreachable",), Ready="Unknown"))
    changes.take(DELETED, node())
    changes.take(ADDED, node(taints=("new-node",)))
    assert noted(run) == []
    assert changes.count == 1


def test_targets_of_the_season_are_left_out(run: Run) -> None:
    changes = _Changes(run, frozenset({"other"}))
    changes.take(ADDED, node())
    changes.take(MODIFIED, node(taints=("faulty",)))
    assert noted(run) == []
    assert changes.count == 0
