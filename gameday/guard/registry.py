"""Find the guardrails: every Guardrail in a module of `guardrails/`, and those that other packages add."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import ModuleType

from gameday.guard import guardrails as folder
from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation
from gameday.plugins import BrokenPlugin, Group, classes_in, find, modules_of


@cache
def guardrails() -> tuple[Guardrail, ...]:
    """Return one of each guardrail, in the order of their names.

    A guardrail that cannot be loaded appears as one that cannot be measured, so that it refuses every run.
    """
    found = find(Group.GUARDRAILS, modules_of(folder), guardrails_in)
    return tuple(sorted((*found.parts.values(), *map(_Unloadable, found.broken)), key=lambda one: one.name))


def guardrails_in(module: ModuleType) -> Mapping[str, Guardrail]:
    """Return one of each guardrail that a module defines, by its name."""
    return {kind.name: kind() for kind in classes_in(module, Guardrail, ("name",))}  # type: ignore[type-abstract]


class _Unloadable(Guardrail):
    """A guardrail of another package that cannot be loaded."""

    name = ""
    needs_targets = False

    def __init__(self, plugin: BrokenPlugin) -> None:
        self.name = plugin.name  # type: ignore[misc]
        self._plugin = plugin

    def limit(self, observation: Observation) -> str:
        return "not known"

    def measure(self, observation: Observation) -> Measurement:
        return Measurement(None, "", str(self._plugin), "install a version of it that works, or uninstall it")
