"""Find the expectations: those in modules of this package, and those that other packages add by entry points."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import gameday.expect
from gameday.expect.base import Expectation
from gameday.plugins import Found, Group, classes_in, find, modules_of


@cache
def found_expectations() -> Found[type[Expectation]]:
    """Return every expectation by each of its keys under `expect:`. Raises ValueError for a bug in ours."""
    return find(Group.EXPECTATIONS, modules_of(gameday.expect), expectations_in)


def expectations_in(module: ModuleType) -> dict[str, type[Expectation]]:
    """Return the expectations that a module defines by each of their keys."""
    return {key: part for part in classes_in(module, Expectation, ()) for key in part.model_fields}
