"""The shipped plans, and the search for a plan by its name or its path."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gameday.errors import DocumentError, DocumentProblem
from gameday.plan.fault import FaultParameters
from gameday.plan.load import LoadedPlan, load_plan
from gameday.plugins import Group, find
from gameday.shipped import shipped

_SUGGESTED = 6
"""Most names in a suggestion: most families of plans with a common beginning are no larger."""


def shipped_plans() -> dict[str, Path]:
    """Return the files of the shipped plans of GPU faults by the plans' names, in the order of the names.

    Raises:
        IncompleteInstallationError: The folder of the shipped plans is missing.
    """
    return _plans_in(shipped("plans"))


@cache
def package_plans() -> dict[str, Path]:
    """Return the same for the plans that other packages bring; a season plays them only if named."""
    return dict(find(Group.PLANS, (), lambda module: _plans_in(Path(module.__path__[0]))).parts)


def _plans_in(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.yaml"), key=lambda path: path.stem)}


def find_plan(name_or_path: str) -> Path:
    """Return the file of the shipped plan with this name, or the only one that begins with it; or the path as it is.

    Raises:
        DocumentError: The text is neither a path nor the name of a shipped plan.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) != 1 or path.is_file():
        return path
    plans = shipped_plans() | package_plans()
    if name_or_path in plans:
        return plans[name_or_path]
    begin_so = [name for name in plans if name_or_path and name.startswith(name_or_path)]
    if len(begin_so) == 1:
        return plans[begin_so[0]]
    near = begin_so or difflib.get_close_matches(name_or_path[:64], plans, n=1, cutoff=0.5)
    near = near or [name for name in plans if name_or_path and name_or_path in name]
    more = f" and {len(near) - _SUGGESTED} more" if len(near) > _SUGGESTED else ""
    suggestion = f"did you mean {' or '.join(near[:_SUGGESTED])}{more}?" if near else "`gameday plans` lists them all"
    message = "there is no such file, and no shipped plan of this name"
    raise DocumentError([DocumentProblem(name_or_path, None, None, "", None, message, suggestion)])


def load_shipped(faults: Mapping[str, type[FaultParameters]]) -> list[LoadedPlan]:
    """Return all shipped plans, those of GPU faults first, in the order of their names.

    Args:
        faults: The known faults' parameter models, by their `type`.

    Raises:
        DocumentError: A shipped plan is not valid.
    """
    return [load_plan(path, faults) for path in (shipped_plans() | package_plans()).values()]
