"""Refuse a second attempt of a flow run: Suspend ends a run for good, and Resume and Retry are refused.

Prefect starts a flow from its beginning again when somebody resumes or retries its flow run. So does an
infrastructure that reschedules it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.states import Failed

from gameday.exit_codes import ExitCode
from gameday.flows.judged_state import log_no_judgement_as_a_crash
from gameday.flows.run_page import RUN_TAG, is_subflow, this_flow_run
from gameday.history.events import StepStarted
from gameday.history.journal import read_history
from gameday.report.run_folder import load_run_folder
from gameday.run.abort import Abort
from gameday.run.record import HISTORY_FILE, folder_of_run
from gameday.runs.season_record import SeasonResult
from gameday.values.results import Step


def stop_when_suspended(abort: Abort) -> None:
    """Make *Suspend* stop this flow run at once, as *Cancel* does: the fault is undone, and the report is written.

    Prefect's engine (3.8, FlowRunSuspensionRequest) would wait for the end of the running step, and interrupt what
    follows the undo; only an observer of its own sees that request. A season passes the request on to its runs.
    """
    context = FlowRunContext.get()
    if context is None or is_subflow():
        return
    why = "a person suspended the flow run, and a game-day is never left half-way"

    def mark_requested(state: State[Any]) -> None:
        abort.request("operator", why)

    vars(context.flow_run_suspension_request)["mark_requested"] = mark_requested


def played_before(reports: Path) -> str:
    """Return why this flow run must not break anything: an earlier attempt did, or may have. Empty if none did.

    Args:
        reports: Folder of the runs' own folders.
    """
    run = this_flow_run()
    ids = [tag.removeprefix(RUN_TAG) for tag in run.tags if tag.startswith(RUN_TAG)] if run else []
    for id in ids:
        if (ended := _what_it_did(folder_of_run(reports, id))) is not None:
            return (
                f"Refused, and nothing was broken again: this flow run has played {id} already{ended}. Its report and "
                "its tags are those of that; start a new flow run of the deployment"
            )
    return ""


def refuse_attempt(why: str) -> State[Any]:
    """Return the state of a flow run that was resumed or retried and refused. The tags of its first attempt stay."""
    log_no_judgement_as_a_crash()
    return Failed(message=why, data=SeasonResult(exit_code=ExitCode.REFUSED, why=why))


def _what_it_did(folder: Path) -> str | None:
    """Return how a folder's run ended, or None if it never reached its fault and may be played again."""
    if not (folder / HISTORY_FILE).is_file():
        return ""  # a season, or a folder on another machine
    started = {event.step for event in read_history(folder / HISTORY_FILE).of(StepStarted)}
    return f" ({load_run_folder(folder).result.why.rstrip('.')})" if Step.INJECT in started else None
