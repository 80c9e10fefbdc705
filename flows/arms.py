"""Compare the arms of a plan: choose nodes once, play every arm on them in turn, and show the results side by side.

Each game-day is an ordinary one with its own folder, history and report, in the comparison's folder. The comparison
holds the cluster's lease for all of them, as a season does (flows/season.py, flows/season_runs.py).
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from prefect import flow
from prefect.client.schemas.objects import State

from gameday.errors import DocumentError, RefusedError
from gameday.flows.approval import approve_season
from gameday.flows.attempts import played_before, refuse_attempt, stop_when_suspended
from gameday.flows.choices import GivenPlan, PlanChoice, plan_to_play, source_of
from gameday.flows.cluster import load_cluster
from gameday.flows.hooks import reap_flow_run
from gameday.flows.invocation import occasion, run_command
from gameday.flows.run_page import plan_name, tag_run
from gameday.flows.schedule import refuse_overdue
from gameday.flows.season import refused_state, season_state
from gameday.flows.season_runs import SeasonRuns
from gameday.run.record import new_run_id
from gameday.runs.assignment import assign, comparison_of
from gameday.runs.plans import plan_with_arms, played_here
from gameday.runs.play import fit_nodes, open_season
from gameday.runs.season_record import SeasonRecord, SeasonResult, refuse_left_out
from gameday.tasks.compare import compare
from gameday.tasks.reaped_runs import notify_reaped
from gameday.values.results import Trigger


@flow(
    name="comparison",
    flow_run_name=plan_name,
    persist_result=False,
    validate_parameters=True,
    on_cancellation=[reap_flow_run],
    on_crashed=[reap_flow_run],
)
def comparison(
    plan: PlanChoice,
    profile: str | None = None,
    profiles: dict[str, str] | None = None,
    reports: str = "reports",
    trigger: Trigger = "manual",
    comparison_id: str | None = None,
    command: str | None = None,
    approved_by: str | None = None,
    given: GivenPlan | None = None,
) -> State[SeasonResult]:
    """Play the same game-day with each arm of a plan, on the same nodes, and show what the arms change.

    Args:
        plan: A shipped plan's name or the path of a plan file; it has `arms`.
        profile: Cluster profile's path, or block:NAME; none: GAMEDAY_* of the environment.
        profiles: Profiles by the clusters' names that a form offers; `gameday deploy` sets it.
        reports: Folder the comparison's own folder is made in, which holds its game-days' folders.
        trigger: The reason why this comparison is made.
        comparison_id: Beginning of the names of the comparison and of its game-days; none: from the time.
        command: Shell line that runs the same again, for the page.
        approved_by: Your name, if you approve now what this comparison will break. Empty: its page asks for it, once,
            before anything is broken.
        given: The plan as a program has read it; leave it empty.
    """
    profile, trigger = source_of(profile, profiles), occasion(trigger)
    id = comparison_id or f"arms-{new_run_id()}"
    if why := played_before(Path(reports)):
        return refuse_attempt(why)
    try:
        cluster = load_cluster(profile)
        chosen = plan_with_arms(plan, plan_to_play(given, plan, cluster), cluster)
        folder = Path(reports) / comparison_of(id, chosen.plan)
        refuse_overdue(trigger)
        with open_season(id, cluster, partial(notify_reaped, cluster, reports=Path(reports)), [chosen]) as opened:
            stop_when_suspended(opened.abort)
            refuse_left_out(played_here([chosen], cluster.lab_control)[1])
            assigned, unassigned = assign(id, [chosen], fit_nodes(opened, [chosen], chosen.arms.seed))
            refuse_left_out(unassigned)
            approved = approve_season(opened, cluster, [chosen], assigned, approved_by, folder)
            refuse_left_out(approved.left_out)
            record = SeasonRecord(
                id=id,
                cluster=cluster.name,
                trigger=trigger,
                command=command or run_command(plan, profile),
                seed=chosen.arms.seed,
                at_once=chosen.plan.targets.nodes,
                started=datetime.now(UTC),
                places=approved.runs,
                left_out=(),
            )
            tag_run(id, chosen.plan.name, chosen.plan.fault.type, cluster.name)
            died = SeasonRuns(record, [chosen], approved, profile, Path(reports)).play(opened)
    except (DocumentError, RefusedError) as error:
        return refused_state(error)
    return season_state(compare(cluster, folder, died))
