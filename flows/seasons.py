"""Seasons on several clusters at the same time: start each in its own work pool, wait for all, show one page.

Each season is an ordinary one, of the cluster's own deployment, on the cluster's own workers. If one fails, the
others go on.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from prefect import Flow, flow
from prefect.client.schemas.objects import FlowRun, State
from pydantic import Field

from gameday.documents.fields import Duration
from gameday.flows.attempts import played_before, refuse_attempt, stop_when_suspended
from gameday.flows.choices import PlanChoice
from gameday.flows.invocation import occasion
from gameday.flows.judged_state import judged_state
from gameday.flows.run_page import tag_run
from gameday.run.abort import Abort
from gameday.run.record import new_run_id
from gameday.runs.clusters import ClusterSeasons
from gameday.runs.season_record import SeasonResult
from gameday.tasks.cluster_seasons import Patience, await_seasons, cancel_subflows, show_clusters, start_seasons

# Our own choices: a worker asks every 15 s for work, and the longest season of shipped plans takes a fraction of a day.
_BEGIN_WITHIN, _END_WITHIN = timedelta(minutes=5), timedelta(hours=8)


def cancel_seasons(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Cancel the seasons on clusters that a flow run started before its process died.

    If this fails, Prefect logs an error.

    Raises:
        HTTPError: Prefect's server does not answer (httpx).
    """
    cancel_subflows(flow_run.id)


@flow(
    name="seasons",
    flow_run_name="seasons of several clusters",
    persist_result=False,
    validate_parameters=True,
    on_cancellation=[cancel_seasons],
    on_crashed=[cancel_seasons],
)
def seasons(
    clusters: Annotated[list[str], Field(min_length=1)],
    plans: list[PlanChoice] = [],  # noqa: B006 - Prefect reads the default for its form; nobody changes it
    seed: int = 1,
    at_once: Annotated[int, Field(ge=1, le=100)] = 4,
    within: Duration | None = None,
    reports: str = "reports",
    begin_within: Duration | None = None,
    end_within: Duration | None = None,
    approved_by: str | None = None,
) -> State[SeasonResult]:
    """Play a season on several clusters at the same time, and show them on one page with a row per cluster.

    Args:
        clusters: Names of the clusters, each with a season's deployment of its own.
        plans: Shipped plans' names or paths of plan files. Empty: every shipped one that is not dangerous.
        seed: A whole number from which the nodes are drawn: the same number draws the same nodes again.
        at_once: The most nodes of each cluster that are broken at the same time, 1 to 100.
        within: Leave out plans that may wait longer than this for a signal, like 90s or 4m. Empty: no limit.
        reports: Folder that the folder of the page is made in.
        begin_within: Longest time until a worker begins each season, like 10m; a later one is cancelled. Empty: 5m.
        end_within: Longest time until all seasons have ended, like 4h; the page shows those that have. Empty: 8h.
        approved_by: Your name, if you approve now what these seasons will break. Empty: each cluster's season asks for
            it on its own page before anything is broken, unless a schedule started this.
    """
    if why := played_before(Path(reports)):
        return refuse_attempt(why)
    id, began, abort = f"seasons-{new_run_id()}", datetime.now(UTC), Abort()
    parameters = {"plans": plans, "seed": seed, "at_once": at_once, "approved_by": approved_by}
    parameters |= {"trigger": occasion("manual")}
    parameters |= {"within": f"{within.total_seconds():g}s"} if within else {}
    stop_when_suspended(abort)
    tag_run(id, *clusters)
    with abort.on_signals():
        started = start_seasons(clusters, parameters, id)
        begin = _BEGIN_WITHIN if begin_within is None else begin_within
        rows = await_seasons(started, Patience(begin, end_within or _END_WITHIN), abort)
        made = ClusterSeasons(
            id=id,
            plans=tuple(plans),
            started=began,
            ended=datetime.now(UTC),
            clusters=tuple(rows),
            stopped=str(abort.requested or ""),
        )
        show_clusters(Path(reports), made)
    return judged_state(made.result.exit_code, made.result.why, made.result)
