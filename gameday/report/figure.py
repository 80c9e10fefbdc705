"""Figures: named numbers with a unit that runs are compared by, beside verdicts and durations.

Every module of `gameday.report.figures` that defines `figures(plan, history, frames)` is found and asked, and so are
those of other packages. What a run did not measure is left out, and never given as 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from pydantic import BaseModel, ConfigDict, Field

import gameday.report.figures as own_figures
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.plugins import Found, Group, find, modules_of


class Figure(BaseModel):
    """A number of one run. Figures of the same name in two runs have the same unit, and may be compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(max_length=120, description="for people, such as 'peak memory of the API server'")
    unit: str = Field(max_length=32, description="as written behind the number; 's' is written as a duration")
    value: float


@dataclass(frozen=True)
class Figures:
    """The figures of one run, in the order of their modules' names."""

    figures: tuple[Figure, ...]
    problems: tuple[str, ...]
    """Sentences about the modules that could not give theirs."""


def figures_of(plan: Plan, history: History, frames: Frames) -> Figures:
    """Ask every module. One that raises loses only its own figures, and leaves a sentence. Raises nothing."""
    found: list[Figure] = []
    problems = [str(broken) for broken in _found().broken]
    for name, module in sorted(_found().parts.items()):
        try:
            found += [figure for figure in module.figures(plan, history, frames) if math.isfinite(figure.value)]
        except Exception as error:  # a figure's own bug must not cost the page the others
            problems.append(f"The figures of {name} could not be read: {type(error).__name__}: {error}.")
    return Figures(tuple(found), tuple(problems))


@cache
def _found() -> Found[ModuleType]:
    return find(Group.FIGURES, modules_of(own_figures), _figures_in)


def _figures_in(module: ModuleType) -> Mapping[str, ModuleType]:
    return {module.__name__.rpartition(".")[2]: module} if hasattr(module, "figures") else {}
