"""Ask a person in the Prefect UI: pause this flow run until somebody answers, or until the caller stops waiting.

Prefect's own `pause_flow_run` sleeps through signals, a lost lease and a guardrail that trips. So we pause the run
with the same calls, and the caller does the waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.concurrency import _leases as leases
from prefect.context import FlowRunContext
from prefect.exceptions import Abort, ObjectNotFound
from prefect.input import RunInput
from prefect.input.run_input import Keyset, keyset_from_paused_state
from prefect.settings import PREFECT_UI_URL
from prefect.states import Paused, Running
from prefect.utilities.engine import propose_state_sync
from pydantic import Field

from gameday.documents.fields import format_duration
from gameday.errors import AbortedError, RefusedError

# The server forgets a pause after its own time-out. Ours always ends first, so that we still set the run's state.
_SERVER_TIMEOUT_MARGIN = timedelta(hours=1)


class Answer(RunInput):
    """The answer of the person who is asked to approve. Prefect draws a form from it."""

    decision: Literal["approve", "refuse"] = Field(
        description="`approve` starts what is described above. `refuse` leaves it out."
    )
    name: str = Field(min_length=1, max_length=100, description="Your name, for the report.")
    comment: str = Field(default="", max_length=1000, description="A remark for the report.")

    @property
    def approved(self) -> bool:
        return self.decision == "approve"


Wait = Callable[[str, Callable[[], Answer | None]], Answer | None]
"""Waits for an answer: gets the question's URL, and a function that returns the answer once there is one."""


def ask(asker: str, question: str, timeout: timedelta, wait: Wait) -> Answer:
    """Pause this flow run with a question until `wait` returns.

    Args:
        asker: The run or season that asks; part of the pause's key.
        question: Markdown for the form.
        timeout: The longest wait, which `wait` must keep.
        wait: Waits for the answer.

    Raises:
        RefusedError: Nobody can be asked, or nobody answered in time.
        AbortedError: The flow run was cancelled meanwhile.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        raise RefusedError("nobody can be asked for approval outside a flow run", "give --approved-by NAME")
    id = context.flow_run.id
    until = f"{datetime.now(UTC) + timeout:%Y-%m-%d %H:%M} UTC"
    state: State[Any] = Paused(
        timeout_seconds=round((timeout + _SERVER_TIMEOUT_MARGIN).total_seconds()),
        pause_key=f"approval-{asker}",
        message=f"Waits for approval until {until}: press Resume",
    )
    keys = keyset_from_paused_state(state)
    state.state_details.run_input_keyset = {str(part): key for part, key in keys.items()}
    outlive_slot()
    with get_client(sync_client=True) as client:
        _pause(client, id, state)
        asked = f"{question}\n\nNo answer until {until} counts as `refuse`."
        Answer.with_initial_data(description=asked).save(keys, flow_run_id=id)
        url = f"{(PREFECT_UI_URL.value() or str(client.api_url)).rstrip('/')}/runs/flow-run/{id}"
        try:
            answer = wait(url, lambda: _read_answer(client, id, keys))
        finally:
            _resume(client, id)
    if answer is None:
        raise RefusedError(f"nobody approved the run within {format_duration(timeout)}", "run it when somebody can")
    return answer


def outlive_slot() -> None:
    """Keep this process alive without its deployment's concurrency slot, which a paused run loses.

    Prefect's server revokes the slot's lease (ReleaseFlowConcurrencySlots in 3.8). Its engine still renews the lease
    every 225 s, and breaks the run off if that fails; no setting changes this. Our own Lease in the cluster still keeps
    a second game-day out.
    """
    leases._renew_concurrency_lease_with_retries = _no_renewal


def _no_renewal(*_: object, **__: object) -> bool:
    """Stop Prefect's thread that renews a lease, without an error."""
    return False


def _pause(client: SyncPrefectClient, id: UUID, state: State[Any]) -> None:
    try:
        paused = propose_state_sync(client, state, flow_run_id=id)
    except (Abort, httpx.HTTPError) as error:
        raise RefusedError(f"Prefect cannot be asked for approval: {error}", "is its server up?") from None
    if not paused.is_paused():
        raise RefusedError(f"Prefect does not pause the run for approval; its state is {paused.name}")


def _read_answer(client: SyncPrefectClient, id: UUID, keys: Keyset) -> Answer | None:
    """Return the answer once the flow run was resumed; None until then, and while Prefect does not answer."""
    try:
        state = client.read_flow_run(id).state
        if state is None or state.is_paused():
            return None
        if state.is_running():
            return cast(Answer, Answer.load(keys, flow_run_id=id))
    except (httpx.HTTPError, ObjectNotFound):
        return None
    raise AbortedError("operator", f"the flow run became {state.name} while it waited for approval")


def _resume(client: SyncPrefectClient, id: UUID) -> None:
    """Resume a flow run that was stopped or got no answer, so that it can still write its report."""
    try:
        if (state := client.read_flow_run(id).state) and state.is_paused():
            propose_state_sync(client, Running(), flow_run_id=id)
    except (Abort, httpx.HTTPError, ObjectNotFound):
        return
