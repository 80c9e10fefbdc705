"""The flow run's page in Prefect: its name, its tags, and the line at the top of its log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import LogCreate
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.runtime import flow_run

from gameday.checks.outcome import RunOutcome
from gameday.flows.choices import plan_of
from gameday.run.record import RunRecord
from gameday.run.targets import ChosenTarget
from gameday.tasks.artifacts import where_prefect_answers
from gameday.tasks.outcome_on_page import with_outcome
from gameday.values.results import Cleanliness

RUN_TAG = "run:"
"""Prefix of the tag with the run's or season's name; the tag is set before anything is broken."""


def plan_name() -> str:
    """Return a flow run's name before its targets are chosen: that of its plan, or of the plan's file."""
    return Path(plan_of(flow_run.parameters["plan"])).stem


def this_flow_run() -> FlowRun | None:
    """Return the current flow run as it was when it began, or None outside of one."""
    context = FlowRunContext.get()
    return context.flow_run if context else None


def is_subflow() -> bool:
    """Return True if the flow run belongs to a season or a comparison."""
    run = this_flow_run()
    return run is not None and run.parent_task_run_id is not None


def describe_flow_run(record: RunRecord, cluster: str, targets: Sequence[ChosenTarget]) -> None:
    """Name the flow run after its plan, targets and run folder, and tag it, so that people can search for it.

    Args:
        record: The run.
        cluster: The cluster's name.
        targets: Its targets.
    """
    where = ", ".join(str(chosen.target) for chosen in targets)
    tag_run(
        record.id, record.plan.name, record.plan.fault.type, cluster, name=f"{record.plan.name} on {where}, {record.id}"
    )


def tag_run(id: str, *tags: str, name: str | None = None) -> None:
    """Tag the flow run with the name of what it plays, by which a later attempt finds that (flows/attempts.py).

    Args:
        id: The run's, or the season's, name.
        tags: More tags.
        name: The flow run's new name; None keeps the present one.
    """
    run = this_flow_run()
    if run is None:
        return
    kept = {tag for tag in run.tags if not tag.startswith(RUN_TAG)}
    with where_prefect_answers(), get_client(sync_client=True) as client:
        client.update_flow_run(run.id, name=name, tags={*kept, *tags, f"{RUN_TAG}{id}"})


def show_outcome(outcome: RunOutcome, cluster: Cleanliness, said: str) -> bool:
    """Tag the flow run with its outcome, put the verdict on top of its log, and return True if it is being cancelled.

    Prefect's pages show the oldest line of a log first, and the worker's lines before those of the run. So the line is
    dated to the moment when the flow run was made, and says when it was really written.

    Args:
        outcome: The outcome.
        cluster: The state of the cluster afterwards.
        said: The verdict in words.
    """
    run = this_flow_run()
    if run is None:
        return False
    level = logging.INFO if (outcome, cluster) == (RunOutcome.PASSED, Cleanliness.CLEAN) else logging.ERROR
    with where_prefect_answers(), get_client(sync_client=True) as client:
        now = client.read_flow_run(run.id)
        client.update_flow_run(run.id, tags=with_outcome(now.tags, outcome, cluster))
        line = LogCreate(
            name="gameday.verdict",
            level=level,
            message=f"{said} (written at {datetime.now(UTC):%H:%M:%S} UTC)",
            timestamp=now.created or datetime.now(UTC),
            flow_run_id=run.id,
        )
        client.create_logs([line])
        return now.state is not None and now.state.is_cancelling()
    return False
