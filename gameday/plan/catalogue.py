"""The shipped plans, and finding a plan by its name or its path."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from gameday.errors import DocumentError, DocumentProblem
from gameday.plan.load import LoadedPlan, load_plan
from gameday.plan.models import FaultParameters
from gameday.shipped import shipped


def shipped_plans() -> dict[str, Path]:
    """Every shipped plan's file by its name, in the order of the names; raises IncompleteInstallationError."""
    return {path.stem: path for path in sorted(shipped("plans").glob("*.yaml"), key=lambda path: path.stem)}


def find_plan(name_or_path: str) -> Path:
    """The file of a shipped plan's name, or the path itself; raises DocumentError for a name nobody ships."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) != 1 or path.is_file():
        return path
    plans = shipped_plans()
    if name_or_path in plans:
        return plans[name_or_path]
    near = difflib.get_close_matches(name_or_path[:64], plans, n=1, cutoff=0.5)
    suggestion = f"did you mean {near[0]}?" if near else f"shipped are: {', '.join(plans) or 'none'}"
    raise DocumentError(
        [DocumentProblem(name_or_path, None, None, "", None, "no file, and no shipped plan", suggestion)]
    )


def load_shipped(faults: Mapping[str, type[FaultParameters]]) -> list[LoadedPlan]:
    """All shipped plans; raises DocumentError when one is broken."""
    return [load_plan(path, faults) for path in shipped_plans().values()]
