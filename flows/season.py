"""A season: choose plans, open the season, assign nodes, ask for approval, play the runs, report.

Each run is an ordinary game-day with its own folder, history and report (flows/season_runs.py). The season holds the
cluster's lease, assigns the nodes, and puts the runs together on one page.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.client.schemas.objects import State
from pydantic import Field

from gameday.documents.fields import Duration
from gameday.errors import DocumentError, RefusedError
from gameday.exit_codes import ExitCode
from gameday.flows.approval import approve_season
from gameday.flows.attempts import played_before, refuse_attempt, stop_when_suspended
from gameday.flows.choices import PlanChoice, source_of
from gameday.flows.cluster import load_cluster
from gameday.flows.hooks import reap_flow_run
from gameday.flows.invocation import occasion
from gameday.flows.judged_state import judged_state
from gameday.flows.run_page import tag_run
from gameday.flows.schedule import refuse_overdue
from gameday.flows.season_runs import SeasonRuns
from gameday.history.room import refused_where_not_written
from gameday.run.record import new_run_id
from gameday.runs.assignment import assign, order_of_plays
from gameday.runs.draw import (
    DEFAULT_MEAN_GAP,
    DRAWN_FROM,
    SEEDS,
    draw,
    plans_to_draw,
    random_season_command,
    refuse_settings,
    usual_duration,
)
from gameday.runs.plans import ChosenPlan, choose_plans, played_here
from gameday.runs.play import OpenSeason, fit_nodes, open_season
from gameday.runs.season_page import plays_in
from gameday.runs.season_record import (
    Assignment,
    LeftOut,
    RandomSettings,
    SeasonRecord,
    SeasonResult,
    WatchingGuest,
)
from gameday.runs.timings import usual_durations
from gameday.tasks.coverage import coverage
from gameday.tasks.reaped_runs import notify_reaped
from gameday.values.results import Trigger


@flow(
    name="season",
    flow_run_name="season",
    persist_result=False,
    validate_parameters=True,
    on_cancellation=[reap_flow_run],
    on_crashed=[reap_flow_run],
)
def season(
    plans: list[PlanChoice] = [],  # noqa: B006 - Prefect reads the default for its form; nobody changes it
    profile: str | None = None,
    profiles: dict[str, str] | None = None,
    seed: int | None = None,
    at_once: Annotated[int, Field(ge=1, le=100)] = 4,
    within: Duration | None = None,
    plays: Annotated[int, Field(ge=1, le=1000)] = 1,
    after: list[str] = [],  # noqa: B006 - as above
    budget: Duration | None = None,
    mean_gap: Duration | None = None,
    reports: str = "reports",
    trigger: Trigger = "manual",
    season_id: str | None = None,
    command: str | None = None,
    approved_by: str | None = None,
) -> State[SeasonResult]:
    """Break many things, each on its own node, and show what would have been noticed, by what, and how fast.

    Args:
        plans: Shipped plans' names or paths of plan files. Empty: every shipped one that is not dangerous.
        profile: Cluster profile's path, or block:NAME; none: GAMEDAY_* of the environment.
        profiles: Profiles by the clusters' names that a form offers; `gameday deploy` sets it.
        seed: A whole number from which the nodes are drawn: the same number draws the same nodes again. Empty: 1, or a
            new one for a random season.
        at_once: The most nodes that are broken at the same time, 1 to 100.
        within: Leave out plans that may wait longer than this for a signal, like 90s or 4m. Empty: no limit.
        plays: The number of times that each plan is played, in the seed's random order.
        after: Folders of earlier seasons: what they played to its end counts as played.
        budget: Length of a random season, like 1h: until then plans, nodes and times are drawn from the seed, dangerous
            plans included if the profile allows their faults. Empty: no random season; each plan is played once.
        mean_gap: Mean time between the beginnings of a random season's game-days, like 10m. Empty: 5m.
        reports: Folder the season's and its runs' folders are made in.
        trigger: The reason why this season is run.
        season_id: Name of the season; none: from the time.
        command: Shell line that runs the same again, for the page.
        approved_by: Your name, if you approve now what this season will break. Empty: its page asks for it, once,
            before anything is broken; a scheduled season asks only if plan or cluster requires it.
    """
    profile, trigger = source_of(profile, profiles), occasion(trigger)
    folder = Path(reports)
    id = season_id or f"season-{new_run_id()}"
    random = RandomSettings(budget=budget, mean_gap=mean_gap or DEFAULT_MEAN_GAP) if budget is not None else None
    seed = seed if seed is not None else secrets.randbelow(SEEDS) if random else 1
    if why := played_before(folder):
        return refuse_attempt(why)
    try:
        cluster = load_cluster(profile)
        refuse_overdue(trigger)
        if random:
            refuse_settings(random)
        done = plays_in([Path(one) for one in after])
        before = usual_durations(folder, cluster.name) if random else {}
        chosen, left_out = (
            plans_to_draw(plans, cluster=cluster, at_once=at_once, budget=random.budget, before=before)
            if random
            else choose_plans(
                plans,
                within=within,
                at_once=at_once,
                folders=cluster.detector_profiles,
                cluster=cluster,
                rehearsed=trigger == "rehearsal",
            )
        )
        with open_season(id, cluster, partial(notify_reaped, cluster, reports=folder), chosen) as opened:
            stop_when_suspended(opened.abort)
            chosen, without_lab = played_here(chosen, cluster.lab_control)
            order = order_of_plays(chosen, plays, seed, done)
            if chosen and not order:
                raise RefusedError(f"each plan was played {plays} times already", "ask for more --plays")
            placed = _place(opened, order, seed, random, before)
            approved = approve_season(opened, cluster, chosen, placed.runs, approved_by, folder / id)
            record = SeasonRecord(
                id=id,
                cluster=cluster.name,
                guest=WatchingGuest(name=guest.name, version=guest.version) if (guest := cluster.guest) else None,
                trigger=trigger,
                command=command or _again(plans, profile, seed, at_once, random),
                seed=seed,
                at_once=at_once,
                started=datetime.now(UTC),
                places=approved.runs,
                left_out=(*left_out, *without_lab, *placed.left_out, *approved.left_out),
                random=placed.random,
            )
            with refused_where_not_written(folder):
                record.save(folder / id)
            tag_run(id, cluster.name)
            died = SeasonRuns(record, chosen, approved, profile, folder).play(opened)
            record.as_ended(opened.stopped, opened.taken_out, opened.late).save(folder / id)
    except (DocumentError, RefusedError) as error:
        return refused_state(error)
    return season_state(coverage(cluster, folder / id, died))


@dataclass(frozen=True)
class _Placed:
    """The runs with their nodes, and the plans that got none."""

    runs: Sequence[Assignment]
    left_out: Sequence[LeftOut] = ()
    random: RandomSettings | None = None


def _place(
    season: OpenSeason,
    chosen: Sequence[ChosenPlan],
    seed: int,
    random: RandomSettings | None,
    before: Mapping[str, timedelta],
) -> _Placed:
    if random is None:
        runs, left_out = assign(season.id, chosen, fit_nodes(season, chosen, seed))
        return _Placed(runs, tuple(dict.fromkeys(left_out)))
    takes = {one.plan.name: usual_duration(one, season.kubernetes.profile, before) for one in chosen}
    nodes = fit_nodes(season, chosen, seed, DRAWN_FROM)
    drawn, not_placed = draw(season.id, chosen, nodes, random, seed, takes)
    return _Placed(drawn, random=random.model_copy(update={"not_placed": tuple(not_placed)}))


def _again(plans: Sequence[str], profile: str | None, seed: int, at_once: int, random: RandomSettings | None) -> str:
    """Return the shell line that repeats a season, for one that no command line began."""
    if random is None:
        return "gameday coverage"
    return random_season_command(plans, seed, at_once, random, *(["--profile", profile] if profile else []))


def season_state(result: SeasonResult) -> State[SeasonResult]:
    """Return a season's state in Prefect, with its outcome in the message and in the tags."""
    return judged_state(result.exit_code, result.why, result)


def refused_state(error: DocumentError | RefusedError) -> State[SeasonResult]:
    """Return the Prefect state of a season or comparison that was refused before anything changed."""
    hint = f"; {error.hint}" if isinstance(error, RefusedError) and error.hint else ""
    return season_state(SeasonResult(exit_code=ExitCode.REFUSED, why=f"Refused: {error}{hint}"))
