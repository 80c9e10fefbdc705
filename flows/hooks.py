"""Prefect's hooks: undo a run that has lost its process, long before the reaper's next visit.

A worker that finds its flow's process killed, or has killed it because a cancel took too long, runs these hooks in a
fresh process. That process knows only the flow run's id, finds the ledger by it, and reaps. It takes the
cluster's lease, which a living run does not release, so that two processes never undo at the same time. After a run
that undid everything itself it finds nothing.
"""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.logging.loggers import flow_run_logger

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import load_profile
from gameday.errors import ProfileError
from gameday.flows.choices import source_of
from gameday.reaper.reap import reap
from gameday.tasks.flow_run import refuse_flow_run
from gameday.tasks.reaped_runs import notify_reaped


def reap_flow_run(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Undo every open entry of the ledgers of this flow run's process, once their lease shows that the process is dead.

    Then render its reports again and notify people, as the run would have done. While the run lives nothing is undone.
    If that fails, Prefect logs an error and the scheduled reaper tries again. A flow run of another version's
    deployment cannot begin, and is refused with what to do.

    Raises:
        KubernetesError: The cluster does not answer.
    """
    log = flow_run_logger(flow_run, flow)
    if unknown := sorted(flow_run.parameters.keys() - signature(flow.fn).parameters.keys()):
        found = f"{flow.name} takes no {', '.join(unknown)}"
        why = f"the deployment is of another version: {found}; run `gameday deploy` again"
        log.error("%s", why)
        refuse_flow_run(flow_run.id, why)
        return
    try:
        asked = flow_run.parameters
        cluster = load_profile(source_of(asked.get("profile"), asked.get("profiles")))
    except ProfileError as error:
        log.error("nothing was undone: %s", error)
        return
    kubernetes = Kubernetes(cluster)
    try:
        result = reap(kubernetes, flow_run=str(flow_run.id))
    finally:
        kubernetes.close()
    for one in result.reaped:
        log.info("%s", one.describe())
    for part in result.unreadable:
        log.warning("kept, for no undo can be made of it: %s", part)
    for held in result.alive:
        log.warning("the hook did not undo what this flow run left: %s; the reaper does it later", held)
    notify_reaped(cluster, result, Path(flow_run.parameters.get("reports") or "reports"))
