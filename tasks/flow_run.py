"""The state of a flow run that died or never began: nobody else ends it in Prefect."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL
from prefect.states import Crashed, Failed

from gameday.checks.outcome import RunOutcome, RunResult
from gameday.tasks.artifacts import where_prefect_answers
from gameday.tasks.outcome_on_page import verdict, with_outcome
from gameday.values.results import Cleanliness


def settle_flow_run(flow_run: str | None, result: RunResult) -> None:
    """Give the flow run of a dead game-day the tags and the sentence of its report after the reap.

    After its process was killed, a flow run stays *Running* in Prefect, or says only that it crashed. One that ended by
    itself or was cancelled keeps its state. Nothing happens if the settings name no server, or one that does not know
    the flow run.

    Args:
        flow_run: Its id; None for a game-day without Prefect.
        result: The result after the reap.
    """
    if flow_run is None or not PREFECT_API_URL.value():
        return
    with where_prefect_answers(), suppress(ObjectNotFound), get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(flow_run))
        client.update_flow_run(run.id, tags=with_outcome(run.tags, result.outcome, result.cleanliness))
        state, said = run.state, verdict(result.outcome, result.cleanliness, result.why)
        if state is None or not state.is_final() or (state.is_crashed() and state.message != said):
            crashed: State[Any] = Crashed(message=said)
            client.set_flow_run_state(run.id, crashed, force=True)


def refuse_flow_run(flow_run: UUID, why: str) -> None:
    """Give a flow run that could not begin the state *Failed*, with the reason, and a refusal's tags.

    Args:
        flow_run: Its id.
        why: What was wrong, and what to do.
    """
    with where_prefect_answers(), get_client(sync_client=True) as client:
        tags = client.read_flow_run(flow_run).tags
        client.update_flow_run(flow_run, tags=with_outcome(tags, RunOutcome.REFUSED, Cleanliness.CLEAN))
        refused: State[Any] = Failed(message=verdict(RunOutcome.REFUSED, Cleanliness.CLEAN, why))
        client.set_flow_run_state(flow_run, refused, force=True)
