"""Find every check in this package and run it, so that adding a check is adding a file."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from gameday.checks.verdict import Status, Verdict
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan


def check_modules() -> list[ModuleType]:
    """Modules of this package that define `check`, in the order of their `ORDER`, then their name."""
    names = [name for _, name, _ in pkgutil.iter_modules([__file__.rpartition("/")[0]]) if name != "run"]
    modules = [importlib.import_module(f"gameday.checks.{name}") for name in names]
    return sorted((m for m in modules if hasattr(m, "check")), key=lambda m: (getattr(m, "ORDER", 1000), m.__name__))


def run_checks(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    """Every check's verdicts, in the checks' order. Raises nothing: a check that raises is one UNKNOWN verdict."""
    verdicts: list[Verdict] = []
    for module in check_modules():
        verdicts += _run_one(module, plan, history, frames)
    return verdicts


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
