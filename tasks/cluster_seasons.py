"""The seasons of several clusters as flow runs of their deployments: start them, wait, cancel, show them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx
from prefect import get_run_logger
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling
from prefect.utilities.urls import url_for

from gameday.errors import StopRunError
from gameday.exit_codes import ExitCode
from gameday.run.abort import Abort
from gameday.runs.clusters import ClusterSeason, ClusterSeasons, judged, render_cluster_seasons
from gameday.tasks import step_task
from gameday.tasks.artifacts import show_page
from gameday.tasks.outcome_on_page import code_of

_LOOK_EVERY_S = 2.0
# Prefect's runner kills the process of a cancelled flow run 30 s after it has asked it to end; the page takes a moment.
_CANCELLED_WITHIN = timedelta(seconds=20)
_PAGE = 200
"""The most flow runs that Prefect's server returns at once."""


@dataclass(frozen=True)
class StartedSeason:
    """The flow run of one cluster's season, or why there is none."""

    cluster: str
    flow_run: UUID | None = None
    why_not: str = ""


@dataclass(frozen=True)
class Patience:
    """The longest waits for seasons."""

    begin: timedelta
    """Time until a worker has begun a season; a season that has not begun by then is cancelled."""
    end: timedelta
    """Time until all seasons have ended."""


def deployment_of(cluster: str) -> str:
    """Return the name of the deployment for a cluster's seasons, as `gameday deploy --pool-per-cluster` makes it."""
    return f"season/on-{cluster} (breaks GPUs)"


def pool_of(cluster: str) -> str:
    """Return the name of a cluster's work pool."""
    return f"gameday-{cluster}"


@step_task(name="start seasons")
def start_seasons(clusters: Sequence[str], parameters: Mapping[str, Any], id: str) -> list[StartedSeason]:
    """Start a season on each cluster; a failure to start one stops no other.

    Args:
        clusters: The clusters' names.
        parameters: The seasons' parameters.
        id: Prefix of the seasons' names.
    """
    return [_started(one, {**parameters, "season_id": f"{id}-{one}"}) for one in dict.fromkeys(clusters)]


def _started(cluster: str, parameters: dict[str, Any]) -> StartedSeason:
    name = deployment_of(cluster)
    try:
        # It would be a coroutine only in a running event loop, and this is not called in one.
        run = cast("FlowRun", run_deployment(name, parameters=parameters, timeout=0, tags=[cluster]))
    except ObjectNotFound:
        why = f"Prefect has no deployment {name}: `gameday deploy --pool-per-cluster --profile …` makes it"
        return StartedSeason(cluster, why_not=why)
    except httpx.HTTPStatusError as error:
        return StartedSeason(cluster, why_not=f"Prefect does not take a run of {name}: {_said(error.response)}")
    except httpx.HTTPError as error:
        return StartedSeason(cluster, why_not=f"Prefect did not take a run of {name}: {type(error).__name__}")
    get_run_logger().info("%s: %s", cluster, url_for("flow-run", run.id))
    return StartedSeason(cluster, run.id)


def _said(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"it answers {response.status_code}"


@step_task(name="await seasons")
def await_seasons(started: Sequence[StartedSeason], patience: Patience, abort: Abort) -> list[ClusterSeason]:
    """Wait until every season has ended, and return how.

    A season that no worker begins in time is cancelled. An abort cancels all of them. While Prefect does not answer, it
    is asked again.

    Args:
        started: The seasons.
        patience: How long to wait.
        abort: Ends the wait early.
    """
    waiting = _Waiting({one.flow_run for one in started if one.flow_run}, datetime.now(UTC) + patience.begin)
    last = datetime.now(UTC) + patience.end
    with get_client(sync_client=True) as client:
        while not waiting.is_over and datetime.now(UTC) < last:
            with suppress(httpx.HTTPError):
                waiting.look(client)
                if abort.requested and not waiting.cancelled:
                    waiting.cancel(client)
                    last = min(last, datetime.now(UTC) + _CANCELLED_WITHIN)
            _pause(abort)
        return [_row(client, one, waiting, patience) for one in started]


def _pause(abort: Abort) -> None:
    if abort.requested:
        time.sleep(_LOOK_EVERY_S)
    with suppress(StopRunError):
        abort.sleep(_LOOK_EVERY_S)


class _Waiting:
    """The awaited flow runs, as Prefect's server last showed them."""

    def __init__(self, ids: set[UUID], begin_by: datetime) -> None:
        self.runs: dict[UUID, FlowRun] = {}
        self.not_begun: set[UUID] = set()
        self.cancelled = False
        self._ids = ids
        self._begin_by = begin_by

    @property
    def is_over(self) -> bool:
        return all(id in self.runs and _has_ended(self.runs[id]) for id in self._ids)

    def look(self, client: SyncPrefectClient) -> None:
        """Read the runs' states, and cancel those that should have begun. Raises httpx.HTTPError."""
        found = client.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=list(self._ids))))
        self.runs = {run.id: run for run in found}
        late = [run for run in found if run.run_count == 0 and not _has_ended(run)]
        if datetime.now(UTC) > self._begin_by and not self.cancelled:
            for run in late:
                self.not_begun.add(run.id)
                client.set_flow_run_state(run.id, Cancelling())

    def cancel(self, client: SyncPrefectClient) -> None:
        """Cancel every run that has not ended. Raises httpx.HTTPError."""
        _cancel(client, self.runs.values())
        self.cancelled = True


def cancel_subflows(flow_run: UUID) -> None:
    """Cancel the unfinished flow runs that a flow run has started. Raises httpx.HTTPError."""
    children = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run]))
    with get_client(sync_client=True) as client:
        _cancel(client, _all(client, children))


def _cancel(client: SyncPrefectClient, runs: Iterable[FlowRun]) -> None:
    for run in runs:
        if not _has_ended(run) and run.state and not run.state.is_cancelling():
            client.set_flow_run_state(run.id, Cancelling())


def _has_ended(run: FlowRun) -> bool:
    return run.state is not None and run.state.is_final()


def _row(client: SyncPrefectClient, one: StartedSeason, waiting: _Waiting, patience: Patience) -> ClusterSeason:
    run = waiting.runs.get(one.flow_run) if one.flow_run else None
    if run is None or run.state is None:
        unseen = f"Prefect's server did not say what became of flow run {one.flow_run}"
        code = ExitCode.UNKNOWN if one.flow_run else ExitCode.REFUSED
        return ClusterSeason(cluster=one.cluster, code=code, why=one.why_not or unseen)
    if run.id in waiting.not_begun and run.run_count == 0:
        code, within = ExitCode.REFUSED, f"{patience.begin.total_seconds():g} s"
        why = f"no worker began it within {within}: `prefect worker start --pool {run.work_pool_name}`"
    elif not _has_ended(run):
        code = ExitCode.UNKNOWN
        why = f"it is still {run.state.type.value.lower()}, and was not waited for any longer; look at its page"
    else:
        code, why = judged(code_of(run.tags), run.state.name or "", run.state.message or "", began=run.run_count > 0)
    return ClusterSeason(
        cluster=one.cluster,
        code=code,
        why=why,
        game_days=_game_days(client, run.id),
        started=run.start_time if run.run_count else None,
        ended=run.end_time if run.run_count else None,
        page=url_for("flow-run", run.id) or "",
    )


def _game_days(client: SyncPrefectClient, season: UUID) -> dict[str, int] | None:
    """Return how many of a season's game-days had each outcome; None if Prefect does not answer."""
    children = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[season]))
    with suppress(httpx.HTTPError):
        return dict(Counter(_end_of(run) for run in _all(client, children)))
    return None


def _end_of(run: FlowRun) -> str:
    code = code_of(run.tags)
    return code.name.capitalize() if code is not None else run.state_name or "Unknown"


def _all(client: SyncPrefectClient, which: FlowRunFilter) -> Iterator[FlowRun]:
    offset = 0
    while found := client.read_flow_runs(flow_run_filter=which, limit=_PAGE, offset=offset):
        yield from found
        offset += len(found)


@step_task(name="clusters")
def show_clusters(reports: Path, seasons: ClusterSeasons) -> None:
    """Render the page with a row per cluster, and show it in the Prefect UI. Raises OSError."""
    page = render_cluster_seasons(reports / seasons.id, seasons, datetime.now(UTC))
    why = seasons.result.with_also(page.unwritten).why
    show_page("clusters", seasons.markdown, page.html.resolve().as_uri(), why)
