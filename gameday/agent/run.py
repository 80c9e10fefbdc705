"""Run the task in GAMEDAY_TASK, and always end with a termination message and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from gameday.agent.context import Context, Ending, task_error
from gameday.agent.package_task import PackageTask, read_task
from gameday.agent.task import (
    AgentResult,
    AllReduceTask,
    CanaryTask,
    GpuUsersTask,
    InjectTask,
    MarkTask,
    ProbeTask,
    QaTask,
    RemediateTask,
    SampleTask,
    Task,
    UndoTask,
)
from gameday.agent.termination_message import write
from gameday.errors import HostError, TaskError
from gameday.host import open_host
from gameday.values.results import Cleanliness

TASK_VARIABLE = "GAMEDAY_TASK"
STATE_DIR_VARIABLE = "GAMEDAY_STATE_DIR"
TERMINATION_LOG_VARIABLE = "GAMEDAY_TERMINATION_LOG"
_FAILED = 1
_BAD_TASK = 2
"""Exit status for a task that cannot be read; 0 is done and clean."""


def run_agent(environment: Mapping[str, str], ending: Ending) -> int:
    """Carry out the task and write its result.

    Args:
        environment: The container's environment, which holds the task.
        ending: The reason to end, set by a signal.

    Returns:
        The exit status: 0 done and clean, 1 failed or not clean, 2 a task that cannot be read.
    """
    log = Path(environment.get(TERMINATION_LOG_VARIABLE) or "/dev/termination-log")
    state_dir = Path(environment.get(STATE_DIR_VARIABLE) or "/run/gameday")
    role, exit_status_if_failed = "unknown", _FAILED
    try:
        task = _read_task(environment)
        role = task.role
        state_dir.mkdir(parents=True, exist_ok=True)
        context = Context(open_host(environment), ending, state_dir, log)
        result = _carry_out(task, context, environment)
        with suppress(OSError):  # the pod ends with its agent; what became of the fault counts
            context.end_ready()
    except (HostError, OSError) as error:
        result = _failure(role, str(error))
    except TaskError as error:
        result, exit_status_if_failed = _failure(role, f"{TASK_VARIABLE} is not a valid task: {error}"), _BAD_TASK
    except Exception as error:  # a bug of ours must not end without a termination message
        result = _failure(role, f"internal error: {type(error).__name__}: {error}").model_copy(
            update={"cleanliness": Cleanliness.UNKNOWN}
        )
    return _end(result, log, exit_status_if_failed)


def _read_task(environment: Mapping[str, str]) -> Task | PackageTask:
    try:
        return read_task(os.fsencode(environment.get(TASK_VARIABLE, "")))
    except ValidationError as error:
        raise task_error(error) from None


def _carry_out(task: Task | PackageTask, context: Context, environment: Mapping[str, str]) -> AgentResult:  # noqa: C901, PLR0911 - one line for each role
    """Carry out the task, importing only the module of its role so that the agent starts faster."""
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
        case GpuUsersTask():
            from gameday.agent.mark import gpu_users  # noqa: PLC0415

            return gpu_users(task, context)
        case SampleTask():
            from gameday.agent.mark import sample  # noqa: PLC0415

            return sample(task, context)
        case RemediateTask():
            from gameday.agent.remediate import remediate  # noqa: PLC0415

            return remediate(task, context)
        case CanaryTask():
            from gameday.agent.canary import canary  # noqa: PLC0415

            return canary(task, context, environment)
        case AllReduceTask():
            from gameday.agent.all_reduce import all_reduce  # noqa: PLC0415

            return all_reduce(task, context, environment)
        case PackageTask():
            return task.carry_out(context)
        case QaTask():
            from gameday.agent.qa.role import qa  # noqa: PLC0415

            return qa(task, context)
        case ProbeTask():
            from gameday.agent.probe import probe  # noqa: PLC0415

            return probe(task, context, environment)


def _failure(role: str, error: str) -> AgentResult:
    # If an undo could not start, the fault may still be in.
    cleanliness = Cleanliness.UNKNOWN if role == "undo" else Cleanliness.CLEAN
    return AgentResult(role=role, ok=False, cleanliness=cleanliness, ended_by="error", error=error)


def _end(result: AgentResult, log: Path, exit_status_if_failed: int) -> int:
    if result.error:
        print(
            f"gameday agent: {result.role}: {result.error}".encode("ascii", "backslashreplace").decode(),
            file=sys.stderr,
        )
    try:
        write(result, log)
    except OSError as error:
        print(f"gameday agent: cannot write {log}: {error.strerror}", file=sys.stderr)
        return exit_status_if_failed
    return 0 if result.ok and result.cleanliness is Cleanliness.CLEAN else exit_status_if_failed
