"""One game-day: baseline, inject, await alert, verify taint, recover, QA node, and a report whatever happened.

The outcome is computed from the history; the Prefect state is derived from it,
never the other way round. The undo is not a task: it is what leaving
`open_run` does, first thing. Prefect's hooks (flows/way_out.py), the agents'
own deadlines and the reaper stand behind it.
"""

from __future__ import annotations

import os
from pathlib import Path

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.states import Completed, Failed

from flows.approval import approve
from flows.lateness import refuse_what_was_missed
from flows.way_out import undo_what_it_left
from gameday.checks.outcome import Outcome, RunResult
from gameday.cluster.profile import load_profile
from gameday.detectors.resolve import load_complete_plan
from gameday.faults.registry import parameter_models
from gameday.lifecycle import Trigger, new_run_id, open_run
from gameday.plan.catalogue import find_plan
from gameday.run.member import SeasonMember
from tasks.await_alert import await_alert
from tasks.baseline import baseline
from tasks.inject import inject
from tasks.publish import publish_run
from tasks.qa_node import qa_node
from tasks.recover import recover
from tasks.report import report
from tasks.verify_taint import verify_taint

# Set by Prefect's runner for the process it starts: a season's runs share one, and the hooks are the season's.
_STARTED_FOR = "PREFECT__FLOW_RUN_ID"


@flow(
    name="game-day",
    flow_run_name="{plan}",
    persist_result=False,
    validate_parameters=True,
    on_cancellation=[undo_what_it_left],
    on_crashed=[undo_what_it_left],
)
def game_day(
    plan: str = "gpu-fell-off-the-bus",
    profile: str | None = None,
    reports: str = "reports",
    trigger: Trigger = "manual",
    run_id: str | None = None,
    command: str | None = None,
    approved_by: str | None = None,
    member: SeasonMember | None = None,
) -> State[RunResult]:
    """Break one GPU on purpose, and measure whether anything notices and whether the node comes back by itself.

    Args:
        plan: A shipped plan's name, or the path of a plan file.
        profile: Cluster profile's path; none: GAMEDAY_* of the environment.
        reports: Folder the run's own folder is made in.
        trigger: Why this run is made.
        run_id: Name of the run; none: from the time.
        command: Shell line that runs the same again, for the report.
        approved_by: Who said yes already, where the plan needs it; none: asked in this UI.
        member: Set by a season for its own runs; leave it empty.
    """
    cluster = load_profile(Path(profile) if profile else None)
    loaded = load_complete_plan(find_plan(plan), parameter_models(), cluster.detector_profiles, cluster.detector)
    id, this = run_id or new_run_id(), _this_flow_run()
    with open_run(
        id,
        loaded,
        cluster,
        Path(reports),
        trigger=trigger,
        command=command or f"gameday run {plan}",
        flow_run=this,
        carried_by=os.environ.get(_STARTED_FOR) or (this[0] if this else None),
        member=member,
    ) as run:
        refuse_what_was_missed(trigger)
        baseline(run)
        approve(run, approved_by)
        inject(run)
        await_alert(run)
        verify_taint(run)
        recover(run)
        qa_node(run)
    # The second Ctrl-C of an impatient person comes now as often as in the undo, and must not cost the report.
    with run.abort.on_signals():
        result = report(run)
    publish_run(run)
    finished = Completed if result.outcome is Outcome.PASSED else Failed
    return finished(message=result.why, data=result, name=result.outcome.capitalize())


def _this_flow_run() -> tuple[str, str | None] | None:
    context = FlowRunContext.get()
    return (str(context.flow_run.id), None) if context and context.flow_run else None
