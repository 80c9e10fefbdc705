"""The six steps and the report, as Prefect tasks: one module each, beside the parts that several steps share.

A step is one task that runs in the flow's own thread, because nobody can stop a submitted task's thread after a cancel.
It is never cached and keeps no result: its findings are in the run's history.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from gameday.history.events import StepEnded
from gameday.values.results import StepOutcome

if TYPE_CHECKING:
    from gameday.run.run import Run

P = ParamSpec("P")
R = TypeVar("R")


def step_task(name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Return Prefect's `task` decorator with the options of every step."""
    options: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False, "retries": 0}
    return task(name=name, **options)


class JudgedStep(Generic[P, R]):
    """A step with a task that is *Failed* in Prefect if it found an expectation broken, and says which.

    The flow continues in any case: a call returns what the step returns, and raises what it raises.
    """

    def __init__(self, name: str, fn: Callable[Concatenate[Run, P], R]) -> None:
        self.fn = fn
        """The step without Prefect."""
        update_wrapper(self, fn)
        self._task = step_task(name)(_judged(fn))

    def __call__(self, run: Run, /, *args: P.args, **kwargs: P.kwargs) -> R:
        state = self._task(run, *args, **kwargs, return_state=True)
        found: Any = state.result(raise_on_failure=False)
        if isinstance(found, BaseException):
            raise found
        returned: R = found[0]
        return returned


def judged_step(name: str) -> Callable[[Callable[Concatenate[Run, P], R]], JudgedStep[P, R]]:
    """Return the decorator of a step that judges expectations."""
    return lambda fn: JudgedStep(name, fn)


def _judged(fn: Callable[Concatenate[Run, P], R]) -> Callable[Concatenate[Run, P], State[tuple[R]]]:
    @wraps(fn)
    def play(run: Run, /, *args: P.args, **kwargs: P.kwargs) -> State[tuple[R]]:
        returned = (fn(run, *args, **kwargs),)
        ended = run.history().last(StepEnded)
        if ended and ended.outcome is StepOutcome.BROKEN:
            return Failed(message=ended.why, data=returned)
        return Completed(data=returned)

    return play
