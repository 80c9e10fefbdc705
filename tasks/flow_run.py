"""The state of a flow run that died or never began, which nobody ends in Prefect."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL
from prefect.states import Crashed

from gameday.checks.outcome import RunResult
from gameday.exit_codes import ExitCode
from gameday.tasks.artifacts import where_prefect_answers


def settle_flow_run(flow_run: str | None, result: RunResult) -> None:
    """Give the flow run of a game-day that died the state that its report has after the reap.

    A flow run whose process was killed stays *Running* in Prefect, or says only *Crashed*. One that ended by itself
    keeps its state. Nothing happens where the settings name no server, or one that does not know the flow run.

    Args:
        flow_run: Its id; None for a game-day that ran without Prefect.
        result: The result after the reap.
    """
    if flow_run is None or not PREFECT_API_URL.value():
        return
    name = ExitCode(result.exit_code).name.capitalize()
    with where_prefect_answers(), suppress(ObjectNotFound), get_client(sync_client=True) as client:
        state = client.read_flow_run(UUID(flow_run)).state
        if state is None or not state.is_final() or (state.is_crashed() and state.name != name):
            client.set_flow_run_state(UUID(flow_run), Crashed(name=name, message=result.why), force=True)


def refuse_flow_run(flow_run: UUID, why: str) -> None:
    """Give a flow run that could not begin the state *Refused*, with the reason.

    Args:
        flow_run: Its id.
        why: What was wrong, and what to do.
    """
    with where_prefect_answers(), get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run, Crashed(name=ExitCode.REFUSED.name.capitalize(), message=why), force=True)
