"""A node of the cluster in memory, and the pods of a run there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.pods import PodFollower
from gameday.ledger import undo
from gameday.ledger.entries import (
    Header,
)
from gameday.ledger.ledger import Ledger
from tests.ledger.undo.entries import LATER
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import PATIENCE_S, unique


@pytest.fixture
def run() -> str:
    return unique("run")


@pytest.fixture(autouse=True)
def n1(world: ScriptedWorld) -> Iterator[None]:
    """The node that the entries are of; no kubelet is there but a test's."""
    world.core.create_node({"metadata": {"name": "n1"}, "spec": {}})
    yield
    world.core.delete_node("n1")


@pytest.fixture
def pods(reaper: Kubernetes, run: str) -> Iterator[PodFollower]:
    with PodFollower(reaper, run) as following:
        assert following.wait_synced(PATIENCE_S)
        yield following


@pytest.fixture
def ledger(runner: Kubernetes, run: str) -> Ledger:
    return Ledger(runner, Header(run_id=run, plan="p", started=LATER, operator="ada", host="here"))


@pytest.fixture
def sent(reaper: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The pods that are made from now on."""
    create, made = reaper.create_pod, list[dict[str, Any]]()

    def created(manifest: dict[str, Any]) -> str:
        made.append(manifest)
        return create(manifest)

    monkeypatch.setattr(reaper, "create_pod", created)
    return made


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what never comes: it is not waited for."""
    monkeypatch.setattr(undo, "_GONE_WITHIN_S", 0.05)
    monkeypatch.setattr(undo, "_SECOND_AGENT_TIMEOUT_S", 0.05)
