"""Which guardrails there are: every Guardrail in a module of `guardrails/`. Adding one is adding a file."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from gameday.guard import guardrails as folder
from gameday.guard.base import Guardrail


@cache
def guardrails() -> tuple[Guardrail, ...]:
    """One of each, in the order of their names."""
    modules = [import_module(f"{folder.__name__}.{found.name}") for found in pkgutil.iter_modules(folder.__path__)]
    kinds = [
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Guardrail) and kind.__module__ == module.__name__
    ]
    return tuple(sorted((kind() for kind in kinds), key=lambda one: one.name))
