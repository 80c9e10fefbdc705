"""From GAMEDAY_TASK to a termination message and an exit status, whatever the task says."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from gameday.agent.context import Context, Ending, task_error
from gameday.agent.outcome import write
from gameday.agent.task import (
    TASK,
    CanaryTask,
    InjectTask,
    MarkTask,
    Outcome,
    QaTask,
    RemediateTask,
    SampleTask,
    Task,
    UndoTask,
)
from gameday.errors import HostError, TaskError
from gameday.host import open_host
from gameday.values.results import Cleanliness

TASK_VARIABLE = "GAMEDAY_TASK"
STATE_DIR_VARIABLE = "GAMEDAY_STATE_DIR"
TERMINATION_LOG_VARIABLE = "GAMEDAY_TERMINATION_LOG"
GPUS_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
"""Set by the device plugin: the UUIDs of the GPUs that the pod holds."""
BAD_TASK = 2


def run_agent(environment: Mapping[str, str], ending: Ending) -> int:
    """Do the task and write its outcome; the exit status: 0 done and clean, 1 not so, 2 a task that is none."""
    log = Path(environment.get(TERMINATION_LOG_VARIABLE) or "/dev/termination-log")
    state_dir = Path(environment.get(STATE_DIR_VARIABLE) or "/run/gameday")
    role, failed = "unknown", 1
    try:
        task = _task(environment)
        role = task.role
        state_dir.mkdir(parents=True, exist_ok=True)
        context = Context(open_host(environment), ending, state_dir, log)
        outcome = _do(task, context, environment.get(GPUS_VARIABLE, ""))
        context.leave_ready()
    except (HostError, OSError) as error:
        outcome = _failed(role, str(error))
    except TaskError as error:
        outcome, failed = _failed(role, f"{TASK_VARIABLE} is no task: {error}"), BAD_TASK
    except Exception as error:  # a bug of ours still owes the cluster an answer
        outcome = _failed(role, f"internal error: {type(error).__name__}: {error}").model_copy(
            update={"cleanliness": Cleanliness.UNKNOWN}
        )
    return _end(outcome, log, failed)


def _task(environment: Mapping[str, str]) -> Task:
    try:
        return TASK.validate_json(os.fsencode(environment.get(TASK_VARIABLE, "")))
    except ValidationError as error:
        raise task_error(error) from None


def _do(task: Task, context: Context, gpus: str) -> Outcome:  # noqa: PLR0911 - one line a role
    """Imports by role: an injector needs no QA, and starts the sooner for it."""
    match task:
        case InjectTask():
            from gameday.agent.inject import inject  # noqa: PLC0415

            return inject(task, context)
        case UndoTask():
            from gameday.agent.inject import undo  # noqa: PLC0415

            return undo(task, context)
        case MarkTask():
            from gameday.agent.mark import mark  # noqa: PLC0415

            return mark(task, context)
        case SampleTask():
            from gameday.agent.mark import sample  # noqa: PLC0415

            return sample(task, context)
        case RemediateTask():
            from gameday.agent.remediate import remediate  # noqa: PLC0415

            return remediate(task, context)
        case CanaryTask():
            from gameday.agent.canary import canary  # noqa: PLC0415

            return canary(task, context, gpus)
        case QaTask():
            from gameday.agent.qa.role import qa  # noqa: PLC0415

            return qa(task, context)


def _failed(role: str, error: str) -> Outcome:
    # Of an undo that could not be tried, nobody knows whether the fault is still in.
    cleanliness = Cleanliness.UNKNOWN if role == "undo" else Cleanliness.CLEAN
    return Outcome(role=role, ok=False, cleanliness=cleanliness, ended_by="error", error=error)


def _end(outcome: Outcome, log: Path, failed: int) -> int:
    if outcome.error:
        print(
            f"gameday agent: {outcome.role}: {outcome.error}".encode("ascii", "backslashreplace").decode(),
            file=sys.stderr,
        )
    try:
        write(outcome, log)
    except OSError as error:
        print(f"gameday agent: cannot write {log}: {error.strerror}", file=sys.stderr)
        return failed
    return 0 if outcome.ok and outcome.cleanliness is Cleanliness.CLEAN else failed
