"""The order for a canary agent on a target, which tasks/moments/canary.py sends and the dry run shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from gameday.agent.task import CanaryTask
from gameday.expect.canary import ExpectedCanary
from gameday.faults.base import CanaryJob
from gameday.faults.optional import canary_job_of
from gameday.run.agents import AGENT_START_TIMEOUT
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import ChosenTarget
from gameday.values.measures import Measure

CanaryPhase = Literal["before", "during", "after"]
CANARY_TIMEOUT = timedelta(seconds=95) + AGENT_START_TIMEOUT
"""An all-reduce with NCCL's start takes at most 90 s (gameday/agent/canary.py), a ping 20 s; the pod also has to
start."""


def is_told_by_injector(expected: ExpectedCanary, phase: CanaryPhase) -> bool:
    """Return True if the injector measures it, because only its own allocator sees the pieces of memory."""
    return expected.measure is Measure.LARGEST_BLOCK and phase == "during"


def canary_task(
    run: ReadOnlyRun,
    expected: ExpectedCanary,
    target: ChosenTarget,
    phase: CanaryPhase,
    gpus: int,
    peer: str | None = None,
) -> CanaryTask:
    """Return the order to measure once.

    Args:
        run: The run.
        expected: The plan's canary.
        target: The node to measure on, and its GPU.
        phase: Before, during or after the fault.
        gpus: The number of GPUs that a measurement on GPUs takes.
        peer: The node that answered pings before, so that it is asked again; None: the plan's.
    """
    fault = run.plan.fault
    job = canary_job_of(fault) if phase == "during" else CanaryJob()
    return CanaryTask(
        run_id=run.id,
        node=target.node,
        measure=expected.measure,
        gpus=gpus if expected.measure.owns_gpus else 0,
        environment=job.environment,
        over_network=expected.path == "network",
        far_from_gpu=job.far_from_gpu,
        interface=expected.interface,
        peer=peer or expected.peer,
        payload=expected.payload,
        gpu=target.gpu if expected.measure is Measure.LARGEST_BLOCK else None,
    )
