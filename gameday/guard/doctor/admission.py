"""Admission of the pods that a run sends, tested by dry runs that create nothing.

Only the status 403 is a no. After any other error, or without an answer, admission is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gameday.agent.security import api_account_of
from gameday.agent.task import InjectTask
from gameday.cluster.manifests import gpu_canary
from gameday.errors import KubernetesError
from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.plan.fault import FaultParameters
from gameday.run.agents import agent_manifest, injector_deadline
from gameday.run.run import ReadOnlyRun


def check_canaries(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    """Check that admission takes the run's GPU pods, which go through the scheduler after the fault."""
    manifest = gpu_canary(run.record.object_name("canary"), run_id=run.id, node="any", template=run.gpu_pod_template)
    asked_for = f"PriorityClass {run.gpu_pod_template.priority_class}, image {run.gpu_pod_template.image}"
    fix = "kubectl apply -f deploy/rbac, or set canary_priority_class in the cluster profile"
    yield after_dry_run(run, manifest, Prerequisite("kubernetes", "canaries are admitted", True, asked_for, fix))


def check_injector(run: ReadOnlyRun, fault: FaultParameters, node: str) -> Prerequisite:
    """Check that admission takes the injector's pod with its account.

    Args:
        run: The run.
        fault: The fault that the injector holds.
        node: A target.
    """
    task = InjectTask(
        run_id=run.id, node=node, gpu=0, fault=fault.model_dump(mode="json"), hold_s=fault.hold.total_seconds()
    )
    account = api_account_of(task)
    manifest = agent_manifest(run, run.record.object_name("inject"), task, injector_deadline(fault))
    fix = f"create the account {account}: kubectl apply -k deploy/cuda-error/account"
    return after_dry_run(
        run, manifest, Prerequisite("workload", "the injector is admitted", True, f"account {account}", fix)
    )


def after_dry_run(run: ReadOnlyRun, manifest: dict[str, Any], admitted: Prerequisite) -> Prerequisite:
    """Return `admitted`, or its change if admission refuses the pod or cannot answer."""
    try:
        run.kubernetes.create_pod(manifest, dry_run=True)
    except KubernetesError as error:
        # Any other status may come from a webhook that does not support dry runs.
        return replace(admitted, ok=False if error.status == 403 else None, detail=error.cause)
    return replace(admitted, fix="")
