"""Find and run every check: here, in the expectations' folders, and in other packages. To add a check, add a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType

import gameday.checks
import gameday.expect
from gameday.checks.facts import steps_left_out
from gameday.checks.signals import they_come, they_end
from gameday.checks.verdict import Status, Verdict
from gameday.expect.base import NO_ORDER
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.plugins import BrokenPlugin, Found, Group, find, modules_of


@dataclass(frozen=True)
class Check:
    """A check, or the judge of an expectation's signals."""

    name: str
    order: float
    """Place of its verdicts in the report."""
    judge: Callable[[Plan, History, Frames], Sequence[Verdict]]


def checks_of(plan: Plan) -> list[Check]:
    """Return all that judges a plan's runs, in the report's order; at the same place, signals that come are first."""
    found = []
    for part in plan.expect.parts():
        if any(part.signals(plan.expect)):
            name = next(iter(part.model_fields)).replace("_", "-")
            found.append(Check(name, part.order, partial(they_come, part)))
            found.append(Check(name, part.order + 0.5, partial(they_end, part)))
    for path in sorted(_found().parts):
        module = _found().parts[path]
        found.append(Check(_name(path), getattr(module, "ORDER", NO_ORDER), module.check))
    return sorted(found, key=lambda check: check.order)


def _name(path: str) -> str:
    """Return the name of a check: its module's, or its folder's if the module is called `judge`."""
    *_, folder, module = path.split(".")
    return (folder if module == "judge" else module).replace("_", "-")


@cache
def _found() -> Found[ModuleType]:
    folders = (module for module in modules_of(gameday.expect) if hasattr(module, "__path__"))
    judges = [judge for folder in folders for judge in modules_of(folder)]
    return find(
        Group.CHECKS,
        [*modules_of(gameday.checks), *judges],
        lambda module: {module.__name__: module} if hasattr(module, "check") else {},
    )


def run_checks(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    """Return every check's verdicts, in the checks' order.

    A verdict on a step that the flow leaves out is always NOT_ASKED. Raises nothing: a check that raises becomes one
    UNKNOWN verdict.
    """
    verdicts: list[Verdict] = []
    for check in checks_of(plan):
        verdicts += _run_one(check, plan, history, frames)
    verdicts += map(_unloadable, _found().broken)
    left_out = steps_left_out(history)
    return [
        _not_asked(verdict, left_out[verdict.step]) if verdict.step in left_out else verdict for verdict in verdicts
    ]


def _not_asked(verdict: Verdict, why: str) -> Verdict:
    return verdict.model_copy(
        update={"status": Status.NOT_ASKED, "why": why, "measured": "", "seconds": None, "evidence": ()}
    )


def _run_one(check: Check, plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    try:
        return list(check.judge(plan, history, frames))
    except Exception as error:  # a check's own bug must cost one verdict, not the run's report
        return [
            Verdict(
                check=check.name,
                expectation=f"The check {check.name} can be run",
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
