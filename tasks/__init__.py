"""The six steps and the report, as Prefect tasks: one module each, in the order of `gameday.history.events.Step`.

A step is one task that runs in the flow's own thread (a submitted task would
run on after a cancel: its thread is nobody's to stop), is never cached, and
keeps no result: what it found is in the run's history.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

P = ParamSpec("P")
R = TypeVar("R")


def step_task(name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Prefect's `task` with the options every step has."""
    options: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False, "retries": 0}
    return task(name=name, **options)
