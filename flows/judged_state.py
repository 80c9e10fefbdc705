"""The final state of a flow run that was judged: Prefect's own, with the outcome in its message and tags."""

from __future__ import annotations

import logging
from typing import TypeVar

from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed

from gameday.checks.outcome import RunResult, ended_with
from gameday.errors import StopRunError
from gameday.exit_codes import ExitCode
from gameday.flows.run_page import show_outcome
from gameday.tasks.outcome_on_page import verdict

T = TypeVar("T")
_NO_EXCEPTION = "Unexpected result for failed state"
"""The beginning of the message that prefect.states.get_state_exception gives, also for a cancelled state."""


class _NoJudgements(logging.Filter):
    """Drop Prefect's traceback for a judgement, which is not a crash: the log has its reason already.

    For a failed state Prefect 3.8 looks for an exception in the state's data, and logs an unexpected exception if there
    is none. A step that stops its run raises a StopRunError. A step's failed state is logged with an empty traceback,
    before the line that has its sentence.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        raised = record.exc_info[1] if record.exc_info else None
        judged = isinstance(raised, StopRunError) or str(raised).startswith(_NO_EXCEPTION)
        return not judged and not str(record.msg).startswith("Task run failed with state: ")


_NO_JUDGEMENTS = _NoJudgements()


def log_no_judgement_as_a_crash() -> None:
    """Keep tracebacks of judgements out of the logs of this process's flow runs, from now on."""
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_NO_JUDGEMENTS)


def judged_state(exit_code: int, why: str, result: T) -> State[T]:
    """Show a flow run's outcome on its page in Prefect, and return its last state: Completed, Failed or Cancelled.

    A flow run that is being cancelled takes no other end than Cancelled (Prefect 3.8,
    EnforceCancellingToCancelledTransition).

    Args:
        exit_code: The exit code of the command line for the same end.
        why: One sentence; it becomes part of the state's message.
        result: The state's data.
    """
    ended = (result.outcome, result.cleanliness) if isinstance(result, RunResult) else ended_with(exit_code)
    said = verdict(*ended, why)
    cancelled = show_outcome(*ended, said)
    if exit_code == ExitCode.PASSED and not cancelled:
        return Completed(message=said, data=result)
    log_no_judgement_as_a_crash()
    return (Cancelled if cancelled else Failed)(message=said, data=result)
