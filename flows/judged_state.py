"""The last state of a flow run that was judged: named after its exit code, and no crash where it is red."""

from __future__ import annotations

import logging
from typing import TypeVar

from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from gameday.errors import StopRunError
from gameday.exit_codes import ExitCode

T = TypeVar("T")
_NO_EXCEPTION = "Unexpected result for failed state"
"""The begin of the message of prefect.states.get_state_exception."""


class _NoJudgements(logging.Filter):
    """Drops Prefect's traceback of a judgement, which is no crash: its reason is a line of the log already.

    Prefect 3.8 looks for an exception in a failed state's data, and logs that it found none as an unexpected exception.
    A step that stops its run raises a StopRunError.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        raised = record.exc_info[1] if record.exc_info else None
        return not isinstance(raised, StopRunError) and not str(raised).startswith(_NO_EXCEPTION)


_NO_JUDGEMENTS = _NoJudgements()


def log_no_judgement_as_a_crash() -> None:
    """Keep tracebacks of judgements out of this process' flow runs' logs, from now on."""
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_NO_JUDGEMENTS)


def judged_state(exit_code: int, why: str, result: T) -> State[T]:
    """Return a flow run's last state, such as Passed, Failed, Refused or Dirty.

    Args:
        exit_code: The exit code of the command line for the same end.
        why: One sentence, shown beside the state.
        result: The state's data.
    """
    name = ExitCode(exit_code).name.capitalize()
    if exit_code == ExitCode.PASSED:
        return Completed(message=why, data=result, name=name)
    log_no_judgement_as_a_crash()
    return Failed(message=why, data=result, name=name)
