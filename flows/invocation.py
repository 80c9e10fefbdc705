"""The Prefect flow run of a game-day, and the flow run that its process was started for."""

from __future__ import annotations

import os
import shlex

from prefect.context import FlowRunContext

from gameday.lifecycle.opening import Invocation
from gameday.values.results import Trigger

# Prefect's runner sets it for each process that it starts. The runs of a season share the season's.
_STARTED_FOR = "PREFECT__FLOW_RUN_ID"


def occasion(trigger: Trigger) -> Trigger:
    """Return the reason for this flow run: a schedule, if Prefect's made it, else what its parameter says."""
    context = FlowRunContext.get()
    is_scheduled = context and context.flow_run and context.flow_run.auto_scheduled
    return "scheduled" if is_scheduled else trigger


def invocation(trigger: Trigger, command: str) -> Invocation:
    """Return why and how this flow run was started.

    Args:
        trigger: The reason why the run is made.
        command: A shell line that runs the same again.
    """
    context = FlowRunContext.get()
    flow_run = str(context.flow_run.id) if context and context.flow_run else None
    return Invocation(occasion(trigger), command, flow_run, os.environ.get(_STARTED_FOR) or flow_run)


def is_started_by_hand() -> bool:
    """Return True if a person started this flow run at a deployment: in Prefect's pages, by its command or API.

    A flow run of a schedule does not count, nor does one with the parameter `trigger: scheduled`.
    """
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None or run.deployment_id is None:
        return False
    return occasion(run.parameters.get("trigger", "manual")) == "manual"


def run_command(plan: str, profile: str | None) -> str:
    """Return the shell line that runs a plan with this cluster profile."""
    return shlex.join(["gameday", "run", plan, *(["--profile", profile] if profile else [])])
