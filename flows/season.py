"""A season: choose plans, open the season, assign nodes, ask for approval, play the runs, report.

Each run is an ordinary game-day with its own folder, history and report (flows/season_runs.py). The season holds the
cluster's lease, assigns the nodes, and folds the runs' folders into one page.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.client.schemas.objects import State
from pydantic import Field

from gameday.cluster.profile import load_profile
from gameday.documents.fields import Duration
from gameday.errors import ProfileError, RefusedError
from gameday.exit_codes import ExitCode
from gameday.flows.approval import approve_season
from gameday.flows.hooks import reap_flow_run
from gameday.flows.judged_state import judged_state
from gameday.flows.schedule import refuse_overdue
from gameday.flows.season_runs import SeasonRuns
from gameday.run.record import new_run_id
from gameday.season.assignment import assign
from gameday.season.plans import choose_plans, played_here
from gameday.season.record import SeasonRecord, SeasonResult, WatchingGuest
from gameday.season.run import fit_nodes, open_season
from gameday.tasks.coverage import coverage
from gameday.tasks.reaped_runs import notify_reaped
from gameday.values.results import Trigger


@flow(
    name="season",
    flow_run_name="season of {trigger}",
    persist_result=False,
    validate_parameters=True,
    on_cancellation=[reap_flow_run],
    on_crashed=[reap_flow_run],
)
def season(
    plans: list[str] = [],  # noqa: B006 - Prefect reads the default for its form; nobody changes it
    profile: str | None = None,
    seed: int = 1,
    at_once: Annotated[int, Field(ge=1, le=100)] = 4,
    within: Duration | None = None,
    reports: str = "reports",
    trigger: Trigger = "manual",
    season_id: str | None = None,
    command: str | None = None,
    approved_by: str | None = None,
) -> State[SeasonResult]:
    """Break many things, each on a node of its own, and show which would have been noticed, by what, and how fast.

    Args:
        plans: Shipped plans' names or paths of plan files; none: every shipped one that is not dangerous.
        profile: Cluster profile's path, or block:NAME; none: GAMEDAY_* of the environment.
        seed: Chooses the nodes: two seasons of one seed choose alike.
        at_once: Nodes that may be broken at the same time, at most.
        within: Leave out plans that may wait longer than this for a signal, like 4m; none: leave out no plan for it.
        reports: Folder the season's and its runs' folders are made in.
        trigger: The reason why this season is run.
        season_id: Name of the season; none: from the time.
        command: Shell line that runs the same again, for the page.
        approved_by: The person who approved the plans that need it; none: asked in this UI, once for all of them.
    """
    try:
        cluster = load_profile(profile)
    except ProfileError as error:
        return refused_state(RefusedError(str(error)))
    id = season_id or f"season-{new_run_id()}"
    folders, guest = cluster.detector_profiles, cluster.guest
    chosen, left_out = choose_plans(plans, within=within, at_once=at_once, folders=folders, cluster=cluster)
    try:
        refuse_overdue(trigger)
        with open_season(id, cluster, partial(notify_reaped, cluster, reports=Path(reports)), chosen) as opened:
            chosen, without_lab = played_here(chosen, cluster.lab_control)
            assigned, unassigned = assign(id, chosen, fit_nodes(opened, chosen, seed))
            approved = approve_season(opened, cluster, chosen, assigned, approved_by, Path(reports) / id)
            record = SeasonRecord(
                id=id,
                cluster=cluster.name,
                guest=WatchingGuest(name=guest.name, version=guest.version) if guest else None,
                trigger=trigger,
                command=command or "gameday coverage",
                seed=seed,
                at_once=at_once,
                started=datetime.now(UTC),
                places=approved.runs,
                left_out=(*left_out, *without_lab, *unassigned, *approved.left_out),
            )
            record.save(Path(reports) / id)
            died = SeasonRuns(record, chosen, approved.approval, profile, Path(reports)).play(opened)
            record.as_ended(opened.stopped, opened.taken_out).save(Path(reports) / id)
    except RefusedError as error:
        return refused_state(error)
    return season_state(coverage(cluster, Path(reports) / id, died))


def season_state(result: SeasonResult) -> State[SeasonResult]:
    """Return a season's state in Prefect, named after its exit code, such as Passed or Dirty."""
    return judged_state(result.exit_code, result.why, result)


def refused_state(error: RefusedError) -> State[SeasonResult]:
    """Return the state in Prefect of a season, or a comparison, that was refused before anything was changed."""
    why = f"Refused: {error.why}" + (f"; {error.hint}" if error.hint else "")
    return season_state(SeasonResult(exit_code=ExitCode.REFUSED, why=why))
