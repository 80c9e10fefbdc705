"""Prefect's hooks: the fast way out for a run whose process is gone, long before the reaper's next visit.

A worker that finds its flow's process killed, or has killed it because a cancel
took too long, runs these hooks in a fresh process. That process knows nothing
but the flow run's id, by which the ledger is found; all else is the reaper's:
it takes the cluster's lease, which a living run does not let go, so that no
two undo at once. After a run that undid everything itself there is nothing to find.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.logging.loggers import flow_run_logger

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import load_profile
from gameday.reaper.reap import reap
from gameday.tasks.reaped_runs import notify_reaped


def reap_flow_run(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Undo every open entry of the ledgers of this flow run's process, once their lease shows that it is dead.

    Its reports are renewed then, and people are told, as the run would have done. Nothing is undone while a run lives.
    Raises ProfileError and KubernetesError, which Prefect logs; the reaper stands
    behind.
    """
    profile = flow_run.parameters.get("profile")
    cluster = load_profile(Path(profile) if profile else None)
    kubernetes = Kubernetes(cluster)
    try:
        result = reap(kubernetes, flow_run=str(flow_run.id))
    finally:
        kubernetes.close()
    log = flow_run_logger(flow_run, flow)
    for one in result.reaped:
        log.info("%s", one.describe())
    for held in result.alive:
        log.warning("what this flow run left is not undone by its hook: %s; the reaper does it later", held)
    notify_reaped(cluster, result, Path(flow_run.parameters.get("reports") or "reports"))
