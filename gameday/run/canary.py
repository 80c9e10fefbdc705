"""The order that a canary is sent to a target with; used by the steps that measure and by the dry run."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from gameday.agent.task import CanaryTask
from gameday.faults.base import CanaryJob
from gameday.faults.registry import fault_for
from gameday.plan.canary import ExpectedCanary
from gameday.run.agents import AGENT_STARTS_WITHIN
from gameday.run.run import ReadOnlyRun

CanaryPhase = Literal["before", "during", "after"]
# An all-reduce with NCCL's start takes 90 s at most (gameday/agent/canary.py), a ping 20 s; and the pod has to start.
MEASURED_WITHIN = timedelta(seconds=95) + AGENT_STARTS_WITHIN


def canary_task(
    run: ReadOnlyRun, expected: ExpectedCanary, node: str, phase: CanaryPhase, gpus: int, peer: str | None = None
) -> CanaryTask:
    """Return the order; `peer` is the node that answered before, so that the same one is asked again."""
    fault = run.plan.fault
    job = fault_for(fault).canary_job(fault) if phase == "during" else CanaryJob()
    return CanaryTask(
        run_id=run.id,
        node=node,
        measure=expected.measure,
        gpus=0 if expected.measure.uses_ping else gpus,
        environment=job.environment,
        over_network=expected.path == "network",
        far_from_gpu=job.far_from_gpu,
        interface=expected.interface,
        peer=peer or expected.peer,
        payload=expected.payload,
    )
