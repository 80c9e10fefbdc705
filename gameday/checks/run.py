"""Find every check, in this package and in others, and run it, so that adding a check is adding a file."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import gameday.checks
from gameday.checks.facts import steps_left_out
from gameday.checks.verdict import Status, Verdict
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.plugins import BrokenPlugin, Found, Group, find, modules_of

_LAST = 1000
"""The place of a check that names none in its `ORDER`."""


def check_modules() -> list[ModuleType]:
    """Return the modules that define `check`, in the order of their `ORDER`, then their name."""
    return sorted(_found().parts.values(), key=lambda module: (getattr(module, "ORDER", _LAST), module.__name__))


@cache
def _found() -> Found[ModuleType]:
    return find(
        Group.CHECKS,
        modules_of(gameday.checks),
        lambda module: {module.__name__: module} if hasattr(module, "check") else {},
    )


def run_checks(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    """Return every check's verdicts, in the checks' order.

    A verdict on a step that the flow leaves out is NOT_ASKED, whatever its check says. Raises nothing: a check that
    raises is one UNKNOWN verdict.
    """
    verdicts: list[Verdict] = []
    for module in check_modules():
        verdicts += _run_one(module, plan, history, frames)
    verdicts += map(_unloadable, _found().broken)
    left_out = steps_left_out(history)
    return [
        _not_asked(verdict, left_out[verdict.step]) if verdict.step in left_out else verdict for verdict in verdicts
    ]


def _not_asked(verdict: Verdict, why: str) -> Verdict:
    return verdict.model_copy(
        update={"status": Status.NOT_ASKED, "why": why, "measured": "", "seconds": None, "evidence": ()}
    )


def _run_one(module: ModuleType, plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    try:
        return list(module.check(plan, history, frames))
    except Exception as error:  # a check's own bug must cost one verdict, not the run's report
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        return [
            Verdict(
                check=name,
                expectation=f"The check {name} can be run",
                status=Status.UNKNOWN,
                why=f"the check raised {type(error).__name__}: {error}",
            )
        ]


def _unloadable(plugin: BrokenPlugin) -> Verdict:
    return Verdict(
        check=plugin.name,
        expectation=f"The check {plugin.name} of {plugin.package or 'another package'} can be run",
        status=Status.UNKNOWN,
        why=str(plugin),
    )
