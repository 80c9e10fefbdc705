"""A person's yes before anything is broken: asked in the Prefect UI, or given on the command line.

Prefect's own `pause_flow_run` sleeps through signals, a lost lease and a
guardrail that trips; so the run is paused by the same calls, and the waiting
is the run's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.exceptions import Abort, ObjectNotFound
from prefect.input import RunInput
from prefect.input.run_input import Keyset, keyset_from_paused_state
from prefect.settings import PREFECT_UI_URL
from prefect.states import Paused, Running
from prefect.utilities.engine import propose_state_sync
from pydantic import Field

from gameday.cluster.profile import ClusterProfile
from gameday.documents.fields import format_duration
from gameday.errors import AbortedError, RefusedError
from gameday.guard.check import guard_before
from gameday.guard.preview import plain, summary
from gameday.history.events import ApprovalAnswered, ApprovalAsked
from gameday.history.journal import Journal
from gameday.plan.models import Plan
from gameday.run.run import Run
from gameday.run.season_member import Approval
from gameday.run.targets import Targets, unfit_targets
from gameday.season.record import APPROVAL_FILE, Assignment
from gameday.season.run import OpenSeason

_POLL_S = 1.0
# The server forgets a pause that nobody ends; we always end ours first, so that its state stays ours to set.
_OUTLIVES_US = timedelta(hours=1)


class Answer(RunInput):
    """Shall this game-day break what it says it will?"""

    approved: bool = Field(default=False, description="Yes, inject the fault. Off: the run is refused")
    name: str = Field(min_length=1, max_length=100, description="Who you are; it stands in the report")
    comment: str = Field(default="", max_length=1000, description="Anything the report should say")


def approve(run: Run, targets: Targets, approved_by: str | None) -> None:
    """Return once a person said yes, where the plan or the profile asks for one.

    Raises RefusedError for a no, for no answer in time, and for a cluster that
    changed its state meanwhile; AbortedError when the run is cancelled.
    """
    asked = [one.within for one in (run.plan.approval, run.profile.approval) if one.required]
    if not asked:
        return
    if approved_by:
        run.note(ApprovalAnswered(approved=True, by=approved_by, via="command line"))
        return
    given = run.member.approval if run.member else None
    if run.member and given:
        about: dict[str, Any] = {"season": run.member.season, "answered_at": given.at, "comment": given.comment}
        run.note(ApprovalAnswered(approved=True, by=given.by, via=given.via, **about))
        return
    within = min(asked)

    def wait(where: str, answered: Callable[[], Answer | None]) -> Answer | None:
        run.note(ApprovalAsked(within_s=within.total_seconds(), where=where))
        return run.wait(f"approval at {where}", within, answered, every_s=_POLL_S)

    answer = _ask(run.id, summary(run, targets), within, wait)
    run.note(ApprovalAnswered(approved=answer.approved, by=answer.name, via="Prefect", comment=answer.comment))
    if not answer.approved:
        raise RefusedError(f"{answer.name} turned it down" + (f": {answer.comment}" if answer.comment else ""))
    if unfit := unfit_targets(run, targets):
        raise RefusedError(f"while the run waited for approval: {'; '.join(unfit)}", "run it again")
    guard_before(run, targets)


def approve_season(
    season: OpenSeason,
    cluster: ClusterProfile,
    runs: Sequence[tuple[Assignment, Plan]],
    approved_by: str | None,
    folder: Path,
) -> tuple[Approval | None, dict[str, str]]:
    """Ask once for all runs that need a person's yes: the yes, and by run id why those without one are left out.

    Question and answer stand in the season's `folder` (APPROVAL_FILE). Raises AbortedError when the season is stopped
    meanwhile, and OSError where the folder cannot be written.
    """
    needy = [
        (place, plan, [one.within for one in (plan.approval, cluster.approval) if one.required])
        for place, plan in runs
        if plan.approval.required or cluster.approval.required
    ]
    if not needy:
        return None, {}
    if approved_by:
        return Approval(by=approved_by, at=datetime.now(UTC), via="command line"), {}
    within = min(bound for _, _, bounds in needy for bound in bounds)
    question = _of_season(season.id, cluster, [(place, plan) for place, plan, _ in needy])
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / APPROVAL_FILE)
    try:
        answer = _ask(season.id, question, within, partial(_wait, season, within, journal))
        given = {"by": answer.name, "comment": answer.comment, "season": season.id}
        journal.append(ApprovalAnswered(approved=answer.approved, via="Prefect", **given))
    except RefusedError as error:
        return None, dict.fromkeys((place.run_id for place, _, _ in needy), f"it needs approval, and {error.why}")
    finally:
        journal.close()
    if answer.approved:
        return Approval(by=answer.name, at=datetime.now(UTC), via="Prefect", comment=answer.comment), {}
    why = f"{answer.name} turned it down" + (f": {answer.comment}" if answer.comment else "")
    return None, dict.fromkeys((place.run_id for place, _, _ in needy), why)


def _of_season(season: str, cluster: ClusterProfile, runs: Sequence[tuple[Assignment, Plan]]) -> str:
    """Markdown for whoever is asked: which plans, what each breaks, and where."""
    head = f"Season {plain(season)} on cluster {plain(cluster.name)}: {len(runs)} game-days need a yes"
    said = [
        f"* **{plain(plan.title)}**: fault `{plan.fault.type}` on {', '.join(map(plain, place.targets))}, "
        f"in for {format_duration(plan.fault.hold)} at most; repair: {plan.recover.remediation}"
        for place, plan in runs
    ]
    return "\n".join([head, "", *said, "", "A no leaves these out; the season's other game-days run."])


def _wait(
    season: OpenSeason, within: timedelta, journal: Journal, where: str, answered: Callable[[], Answer | None]
) -> Answer | None:
    journal.append(ApprovalAsked(within_s=within.total_seconds(), where=where))
    deadline = time.monotonic() + within.total_seconds()
    while (answer := answered()) is None and (left := deadline - time.monotonic()) > 0:
        season.abort.sleep(min(_POLL_S, left))
    return answer


def _ask(
    asker: str,
    question: str,
    within: timedelta,
    wait: Callable[[str, Callable[[], Answer | None]], Answer | None],
) -> Answer:
    """Pause this flow run with the question until `wait` (given where it stands, and what looks for an answer) ends.

    Raises RefusedError where nobody can be asked or nobody answered.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        raise RefusedError("nobody can be asked for approval outside a flow run", "give --approved-by NAME")
    id = context.flow_run.id
    state: State[Any] = Paused(
        timeout_seconds=round((within + _OUTLIVES_US).total_seconds()), pause_key=f"approval-{asker}"
    )
    keys = keyset_from_paused_state(state)
    state.state_details.run_input_keyset = {str(part): key for part, key in keys.items()}
    with get_client(sync_client=True) as client:
        try:
            paused = propose_state_sync(client, state, flow_run_id=id)
        except (Abort, httpx.HTTPError) as error:
            raise RefusedError(f"Prefect cannot be asked for approval: {error}", "is its server up?") from None
        if not paused.is_paused():
            raise RefusedError(f"Prefect does not pause the run for approval, but says {paused.name}")
        Answer.with_initial_data(description=question).save(keys, flow_run_id=id)
        where = f"{(PREFECT_UI_URL.value() or str(client.api_url)).rstrip('/')}/runs/flow-run/{id}"
        try:
            answer = wait(where, lambda: _answer(client, id, keys))
        finally:
            _go_on(client, id)
    if answer is None:
        raise RefusedError(f"nobody approved the run within {format_duration(within)}", "run it when somebody can")
    return answer


def _answer(client: SyncPrefectClient, id: UUID, keys: Keyset) -> Answer | None:
    """The answer once the flow run was resumed; None while nobody did, or Prefect does not say."""
    try:
        state = client.read_flow_run(id).state
        if state is None or state.is_paused():
            return None
        if state.is_running():
            return cast(Answer, Answer.load(keys, flow_run_id=id))
    except (httpx.HTTPError, ObjectNotFound):
        return None
    raise AbortedError("operator", f"the flow run became {state.name} while it waited for approval")


def _go_on(client: SyncPrefectClient, id: UUID) -> None:
    """A run that nobody answered, or that was stopped, is no longer paused: the report is still to come."""
    try:
        if (state := client.read_flow_run(id).state) and state.is_paused():
            propose_state_sync(client, Running(), flow_run_id=id)
    except (Abort, httpx.HTTPError, ObjectNotFound):
        return
