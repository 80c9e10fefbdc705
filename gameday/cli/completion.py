"""Completions of the shell, once `gameday --install-completion` has been run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def complete_plan(incomplete: str) -> Iterator[str]:
    """Yield the shipped plans' names, the plan files and the folders that begin like this."""
    from gameday.plan.catalogue import package_plans, shipped_plans

    yield from (name for name in shipped_plans() | package_plans() if name.startswith(incomplete))
    typed = Path(incomplete)
    folder, begin = (typed, "") if incomplete.endswith("/") else (typed.parent, typed.name)
    for path in _inside(folder):
        if path.name.startswith(begin) and path.suffix in (".yaml", ".yml"):
            yield str(path)
        elif path.name.startswith(begin or "\0") and path.is_dir():
            yield f"{path}/"


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
