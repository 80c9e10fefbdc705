"""One game-day: baseline, inject, await alert, verify taint, recover, QA node, and a report whatever happened.

The outcome is computed from the history; the Prefect state is derived from it,
never the other way round. The undo is not a task and not a hook: it is what
leaving `open_run` does, first thing, and the agents' own deadlines and the
reaper stand behind it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.states import Completed, Failed
from pydantic import Field

from gameday.checks.outcome import Outcome, RunResult
from gameday.cluster.profile import load_profile
from gameday.faults.registry import parameter_models
from gameday.lifecycle import Trigger, new_run_id, open_run
from gameday.plan.catalogue import find_plan
from gameday.plan.load import load_plan
from tasks.await_alert import await_alert
from tasks.baseline import baseline
from tasks.inject import inject
from tasks.qa_node import qa_node
from tasks.recover import recover
from tasks.report import report
from tasks.verify_taint import verify_taint


@flow(name="game-day", flow_run_name="{plan}", persist_result=False, validate_parameters=True)
def game_day(
    plan: Annotated[
        str, Field(description="A shipped plan's name, or the path of a plan file")
    ] = "gpu-fell-off-the-bus",
    profile: Annotated[
        str | None, Field(description="Cluster profile's path; none: GAMEDAY_* of the environment")
    ] = None,
    reports: Annotated[str, Field(description="Folder the run's own folder is made in")] = "reports",
    trigger: Annotated[Trigger, Field(description="Why this run is made")] = "manual",
    run_id: Annotated[str | None, Field(description="Name of the run; none: from the time")] = None,
    command: Annotated[str | None, Field(description="Shell line that runs the same again, for the report")] = None,
) -> State[RunResult]:
    """Break one GPU on purpose, and measure whether anything notices and whether the node comes back by itself."""
    loaded = load_plan(find_plan(plan), parameter_models())
    cluster = load_profile(Path(profile) if profile else None)
    id = run_id or new_run_id()
    with open_run(
        id,
        loaded,
        cluster,
        Path(reports),
        trigger=trigger,
        command=command or f"gameday run {plan}",
        flow_run=_this_flow_run(),
    ) as run:
        baseline(run)
        inject(run)
        await_alert(run)
        verify_taint(run)
        recover(run)
        qa_node(run)
    result = report(run)
    finished = Completed if result.outcome is Outcome.PASSED else Failed
    return finished(message=result.why, data=result, name=result.outcome.capitalize())


def _this_flow_run() -> tuple[str, str | None] | None:
    context = FlowRunContext.get()
    return (str(context.flow_run.id), None) if context and context.flow_run else None
