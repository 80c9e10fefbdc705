"""The moments of a run at which an expectation or a setting acts, beside the steps' own work.

A module here acts at a moment if it defines a function of the moment's name; `ORDER` is its place among the others.
Other packages add such modules by entry points.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cache
from types import ModuleType
from typing import Any

import gameday.tasks.moments
from gameday.plugins import Group, find, modules_of


class Moment(StrEnum):
    """The moments, in their order. Each value is the name of a function, and its text gives the arguments."""

    BEFORE_FAULT_ON = "before_fault_on"
    """`(run, target)`: in the baseline, once a target has passed; raises RefusedError."""
    BEFORE_FAULT = "before_fault"
    """`(run, targets, gpu_pods)`: when all have passed, with the agents' notes of the pods on each node's GPUs."""
    FAULT_GOES_IN = "fault_goes_in"
    """`(run, targets)`: before the first injector is sent; raises StepFailedError."""
    FAULT_IS_IN = "fault_is_in"
    """`(run)`: after the last injector's fault is in."""
    DURING_FAULT = "during_fault"
    """`(run, result, fault)`: for each target, before the step waits for its quarantine."""
    SIGNALS_SEEN = "signals_seen"
    """`(run, result, fault)`: for each target, once all its signals have come or are late."""
    CONTAINED = "contained"
    """`(run, result)`: at the end of step 4."""
    FAULT_IS_OUT = "fault_is_out"
    """`(run)`: before the game-day repairs a node."""
    RECOVERED = "recovered"
    """`(run, result)`: when nodes, alerts and signals are back, or late."""
    QA_BEGINS = "qa_begins"
    """`(run, result, target)`: before QA of a target, even if it needs none."""
    QA_CHECKS = "qa_checks"
    """`(run, target)`: after QA's own checks; returns further checks (QaChecked), which must pass as well."""
    RETURNED = "returned"
    """`(run, result)`: when the nodes are in service again, or stay out of service."""


def happen(moment: Moment, *about: Any) -> list[Any]:
    """Call the functions of every module for a moment; return what each one returned."""
    return [act(*about) for act in _acts()[moment]]


@cache
def _acts() -> dict[Moment, list[Callable[..., Any]]]:
    """Return the modules' functions for each moment: those that they define, not those that they import."""
    modules = list(find(Group.MOMENTS, modules_of(gameday.tasks.moments), _module_with_moments).parts.values())
    modules.sort(key=lambda module: getattr(module, "ORDER", len(modules)))
    return {moment: [act for module in modules if (act := _defined(module, moment))] for moment in Moment}


def _module_with_moments(module: ModuleType) -> dict[str, ModuleType]:
    return {module.__name__: module} if any(_defined(module, moment) for moment in Moment) else {}


def _defined(module: ModuleType, name: str) -> Callable[..., Any] | None:
    found = vars(module).get(name)
    return found if getattr(found, "__module__", "") == module.__name__ else None
