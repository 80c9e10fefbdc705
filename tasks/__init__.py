"""The six steps and the report, as Prefect tasks: one module each, beside the parts that several steps share.

A step is one task that runs in the flow's own thread, because nobody can stop a submitted task's thread after a cancel.
It is never cached and keeps no result: its findings are in the run's history.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

P = ParamSpec("P")
R = TypeVar("R")


def step_task(name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Return Prefect's `task` decorator with the options of every step."""
    options: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False, "retries": 0}
    return task(name=name, **options)
