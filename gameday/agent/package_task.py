"""Tasks of the agent that other packages add: a model of the task, its rights, and what it does in its pod."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from types import ModuleType
from typing import ClassVar, get_args

from pydantic import BaseModel, ValidationError

from gameday.agent.context import Context
from gameday.agent.task import TASK, AgentMessage, AgentResult, Task
from gameday.host.privileges import PodSecurity
from gameday.plugins import Found, Group, classes_in, find


class PackageTask(AgentMessage, ABC):
    """Base of such tasks. A subclass has a `role`, a Literal that no other task has."""

    security: ClassVar[PodSecurity]
    """The rights of its pod."""
    api_account: ClassVar[str | None] = None
    """The service account with which its pod uses the API server; None if it does not."""

    role: str
    run_id: str
    node: str

    @abstractmethod
    def carry_out(self, context: Context) -> AgentResult:
        """Do the task in its pod, until it is done or `context.ending` says so."""


class _AnyTask(BaseModel):
    role: str


def read_task(written: bytes) -> Task | PackageTask:
    """Return the task in a pod's environment. Raises ValidationError."""
    try:
        role = _AnyTask.model_validate_json(written).role
    except ValidationError:
        role = ""
    model = None if role in _OWN_ROLES else _found().parts.get(role)
    return model.model_validate_json(written) if model else TASK.validate_json(written)


_OWN_ROLES = {task.model_fields["role"].default for task in get_args(get_args(Task)[0])}
"""The roles of our own tasks: to read one of them no package is loaded."""


@cache
def _found() -> Found[type[PackageTask]]:
    return find(Group.AGENT_TASKS, (), _tasks_in)


def _tasks_in(module: ModuleType) -> dict[str, type[PackageTask]]:
    found = classes_in(module, PackageTask, ("security",))  # type: ignore[type-abstract]
    return {task.model_fields["role"].default: task for task in found}
