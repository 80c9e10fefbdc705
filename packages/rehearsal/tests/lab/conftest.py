from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from gameday_rehearsal.blueprint import ControlPlane, Size
from tests.game_days.conftest import QUICK, Arena, arena_in, changed, clean_arena
from tests.rehearsal.lab.nodes import Fleet, fleet_on
from tests.rehearsal.lab.plane import Plane, need_programs, running
from tests.rehearsal.processes import until

__all__ = ["clean_arena"]


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """One control plane for all tests that leave it as they found it."""
    with running(tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.fixture(scope="session")
def fleet(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Six virtual nodes of four GPUs on `plane`."""
    with fleet_on(plane, tmp_path_factory.mktemp("fleet")) as joined:
        yield joined


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """The rehearsal's nodes, logs, Prometheus and Prefect around the real control plane.

    It ends with its file: it takes half a processor while it waits.
    """
    need_programs()
    size = Size(nodes=8, gpus=8)  # a reboot moves a node's training elsewhere for good: there has to be room
    with arena_in(tmp_path_factory.mktemp("lab-arena"), size, control_plane=ControlPlane.LAB) as started:
        yield started


_NUMBERS = itertools.count(1)


def await_scheduler(arena: Arena) -> None:
    """Wait until everything that earlier tests killed works again, which the scheduler does last.

    A scheduler places a pod only some time after its API server's third death. The training jobs may be incomplete: a
    creation that was lost with etcd is tried again after the five minutes for which a controller expects to see it.
    """
    name, namespace = f"scheduled-{next(_NUMBERS)}", "training"
    containers = [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]
    arena.core.create_namespaced_pod(namespace, {"metadata": {"name": name}, "spec": {"containers": containers}})
    try:
        until(lambda: arena.core.read_namespaced_pod(name, namespace).spec.node_name, 120, "a pod is scheduled")
    finally:
        arena.core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)


def quick_where_training_runs(arena: Arena) -> dict[str, Any]:
    """Return the quick plan, on a node whose training can prove that pods are kept.

    A node that was rebooted, or whose pods were lost with etcd, may have none.
    """
    found = {
        pod.spec.node_name for pod in arena.core.list_namespaced_pod("training").items if pod.status.phase == "Running"
    }
    assert found, "no training runs anywhere"
    return changed(QUICK, "targets", {"selector": {"kubernetes.io/hostname": min(found)}})


@pytest.fixture
def settled(arena: Arena) -> None:
    await_scheduler(arena)
