"""A fault that is to slow a job down, on a GPU that the job does not use: noted before anything is broken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gameday.agent.task import GpuPodsNote
from gameday.tasks.moments.job_recovery import _note_gpu_of_others

JOB = {"uid-a": "pretrain-a"}


def problems(gpu: int, *pods: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the problems, each with its hint, that are noted for a fault on a GPU of a node.

    `pods` has for each GPU of the node the UIDs of the pods that have it open.
    """
    noted: list[tuple[str, str]] = []
    run: Any = SimpleNamespace(problem=lambda what, hint: noted.append((what, hint)))
    target: Any = SimpleNamespace(node="n1", gpu=gpu)
    notes = [GpuPodsNote(gpu=index, pci=f"0000:0{index}:00", pods=uids) for index, uids in enumerate(pods)]
    _note_gpu_of_others(run, target, JOB, notes)
    return noted


def test_a_gpu_of_another_pod_is_noted_with_one_that_the_job_uses() -> None:
    ((what, hint),) = problems(0, ("uid-b",), ("uid-a",), ("uid-a",))
    assert "pretrain-a of expect.job on n1 uses GPU 1, 2, and the fault goes to GPU 0" in what
    assert hint == "fault.gpu: 1 in the plan"


@pytest.mark.parametrize("pods", [(("uid-a",), ("uid-a",)), (("uid-b",), ("uid-b", "uid-a"))])
def test_a_gpu_of_the_job_is_as_it_should_be(pods: tuple[tuple[str, ...], ...]) -> None:
    assert problems(1, *pods) == []


def test_a_job_that_no_gpu_shows_proves_nothing() -> None:
    """Its pods may only lead others that compute, or nobody looked."""
    assert problems(0, ("uid-b",), ()) == []
    assert problems(0) == []
