"""The flow run's page in Prefect: its name and its tags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.runtime import flow_run

from gameday.run.record import RunRecord
from gameday.run.targets import ChosenTarget
from gameday.tasks.artifacts import where_prefect_answers


def plan_name() -> str:
    """Return the name of a flow run until its targets are chosen: that of its plan, or of its plan's file."""
    return Path(flow_run.parameters["plan"]).stem


def describe_flow_run(record: RunRecord, cluster: str, targets: Sequence[ChosenTarget]) -> None:
    """Name the flow run after its plan, its targets and its run folder, and tag it, so that it can be searched for.

    Args:
        record: The run.
        cluster: The cluster's name.
        targets: Its targets.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    where = ", ".join(str(chosen.target) for chosen in targets)
    tags = {*context.flow_run.tags, record.plan.name, record.plan.fault.type, cluster}
    with where_prefect_answers(), get_client(sync_client=True) as client:
        client.update_flow_run(context.flow_run.id, name=f"{record.plan.name} on {where}, {record.id}", tags=tags)
