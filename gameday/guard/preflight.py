"""Questions and answers of other packages before a run: rights, prerequisites, and the changes of a dry run.

A module of the group `gameday.preflight` defines one or more of these functions:

* `rights(plan, namespace)` yields the rights (`Right`) that a plan needs beside the core's;
* `prerequisites(run)` yields what `gameday doctor` finds (`Prerequisite`);
* `planned_changes(run, targets)` yields the changes (`PlannedChange`) that a run would make.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Literal

from gameday.plugins import Found, Group, find

_FUNCTIONS = ("rights", "prerequisites", "planned_changes")


def preflight_modules(function: Literal["rights", "prerequisites", "planned_changes"]) -> Iterator[ModuleType]:
    """Yield the modules that define this function."""
    yield from (module for module in _found().parts.values() if hasattr(module, function))


@cache
def _found() -> Found[ModuleType]:
    return find(Group.PREFLIGHT, (), _functions_in)


def _functions_in(module: ModuleType) -> dict[str, ModuleType]:
    return {module.__name__: module} if any(hasattr(module, name) for name in _FUNCTIONS) else {}
