"""A season: many game-days at once on nodes of their own, and the coverage matrix of what was noticed.

Its runs are subflows in threads of this process, each an ordinary run with its
own folder, history and report. The season only holds the cluster's lease,
says who breaks which node, and folds what is left on disk into one page.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from pydantic import Field

from gameday.checks.outcome import EXIT_CODES, Outcome, RunResult
from gameday.cluster.profile import load_profile
from gameday.documents.fields import Duration
from gameday.errors import RefusedError
from gameday.flows.approval import approve_season
from gameday.flows.game_day import game_day
from gameday.flows.hooks import reap_flow_run
from gameday.flows.schedule import refuse_overdue
from gameday.plan.models import Plan
from gameday.report.run_folder import load_run
from gameday.run.record import new_run_id
from gameday.run.season_member import Approval, SeasonMember
from gameday.season.assignment import Waiting, place
from gameday.season.plans import Chosen, choose_plans, reach_beyond
from gameday.season.record import LeftOut, Place, SeasonRecord, SeasonResult
from gameday.season.run import carry_out, fit_nodes, open_season
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
        profile: Cluster profile's path; none: GAMEDAY_* of the environment.
        seed: Chooses the nodes: two seasons of one seed choose alike.
        at_once: Nodes that may be broken at the same time, at most.
        within: Leave out plans that may wait longer than this for a signal, like 4m; none: leave out no plan for it.
        reports: Folder the season's and its runs' folders are made in.
        trigger: Why this season is run.
        season_id: Name of the season; none: from the time.
        command: Shell line that runs the same again, for the page.
        approved_by: Who said yes already, for the plans that need it; none: asked in this UI, once for all of them.
    """
    id = season_id or f"season-{new_run_id()}"
    cluster = load_profile(Path(profile) if profile else None)
    folders = cluster.detector_profiles
    chosen, left_out = choose_plans(plans, within=within, at_once=at_once, folders=folders)
    folder = Path(reports) / id
    try:
        refuse_overdue(trigger)
        with open_season(id, cluster, partial(notify_reaped, cluster, reports=Path(reports))) as opened:
            placed, without = place(id, chosen, fit_nodes(opened, chosen, seed))
            plans_by_name = {one.plan.name: one.plan for one in chosen}
            runs = [(one, plans_by_name[one.plan]) for one in placed]
            approval, refused_by_run = approve_season(opened, cluster, runs, approved_by, folder)
            places = [one for one in placed if one.run_id not in refused_by_run]
            without += _said_no_to(runs, refused_by_run)
            record = SeasonRecord(
                id=id,
                cluster=cluster.name,
                trigger=trigger,
                command=command or "gameday coverage",
                seed=seed,
                at_once=at_once,
                started=datetime.now(UTC),
                places=tuple(places),
                left_out=(*left_out, *without),
            )
            record.save(folder)
            play = partial(_play, record=record, chosen=chosen, profile=profile, reports=reports, approval=approval)
            carry_out(opened, Waiting(record.places, at_once, reach_beyond(chosen)), at_once, play, Path(reports))
            died = [Path(reports) / run_id for run_id in sorted(opened.died)]
            record = record.model_copy(update={"ended": datetime.now(UTC), "stopped": opened.stopped})
    except RefusedError as error:
        return _refused(error)
    record.save(folder)
    result = coverage(folder, died)
    finished = Completed if result.exit_code == 0 else Failed
    return finished(message=result.why, data=result)


def _refused(error: RefusedError) -> State[SeasonResult]:
    why = f"Refused: {error.why}" + (f"; {error.hint}" if error.hint else "")
    return Failed(message=why, data=SeasonResult(exit_code=EXIT_CODES[Outcome.REFUSED], why=why), name="Refused")


def _said_no_to(runs: list[tuple[Place, Plan]], refused_by_run: Mapping[str, str]) -> list[LeftOut]:
    return [
        LeftOut(plan=one.plan, title=plan.title, why=refused_by_run[one.run_id])
        for one, plan in runs
        if one.run_id in refused_by_run
    ]


def _play(
    one: Place,
    *,
    record: SeasonRecord,
    chosen: list[Chosen],
    profile: str | None,
    reports: str,
    approval: Approval | None,
) -> RunResult:
    """One run, in whatever thread this is called; of one that broke off, what its history proves."""
    siblings = [other for other in record.places if other.run_id != one.run_id]
    alerts = {alert.name for other in chosen if other.plan.name != one.plan for alert in other.plan.expect.alerts}
    result: object
    try:
        state = game_day(
            plan=one.asked_as,
            profile=profile,
            reports=reports,
            trigger=record.trigger,
            run_id=one.run_id,
            member=SeasonMember(
                season=record.id,
                seed=record.seed,
                targets=one.targets,
                others=frozenset(node for other in siblings for node in other.targets) - set(one.targets),
                their_alerts=frozenset(alerts),
                approval=approval,
            ),
            return_state=True,
        )
        result = state.result(raise_on_failure=False)
    except Exception as error:  # Prefect's own: a server that is gone has no say in what the run found
        result = error
    if isinstance(result, RunResult):
        return result
    folder = Path(reports) / one.run_id
    if isinstance(result, BaseException) and not (folder / "history.jsonl").is_file():
        raise result
    return load_run(folder).result
