"""The folders of files that people read and edit: plans, templates, manifests and docs.

In a checkout they are at the top of the repository. A wheel carries them inside the package (force-include in
pyproject.toml), because their names are too common for the top level of site-packages; of docs it has the runbooks
only. Only this module knows that there are two places.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from gameday.errors import IncompleteInstallationError

_PACKAGE = Path(__file__).parent
_INSTALLED = _PACKAGE / "_shipped"
"""Exists only in an installed package: the target of pyproject.toml's force-include."""


def checkout() -> Path | None:
    """Return the top of the repository that this package runs from; None if it is an installed package."""
    root = _PACKAGE.parent
    return root if not _INSTALLED.is_dir() and (root / "pyproject.toml").is_file() else None


def shipped(kind: Literal["plans", "templates", "deploy", "docs"]) -> Path:
    """Return the shipped folder of this name, in a checkout or an installed package.

    Raises:
        IncompleteInstallationError: The folder is missing.
    """
    return _found(kind, Path.is_dir)


def shipped_prefect_file() -> Path:
    """Return the shipped prefect.yaml.

    Raises:
        IncompleteInstallationError: It is missing.
    """
    return _found("prefect.yaml", Path.is_file)


def _found(name: str, is_there: Callable[[Path], bool]) -> Path:
    # The package's own first: a folder of this name beside an installed package belongs to another package.
    candidates = (_INSTALLED / name, _PACKAGE.parent / name)
    for path in candidates:
        if is_there(path):
            return path
    searched = " and ".join(map(str, candidates))
    raise IncompleteInstallationError(
        f"this installation of gpu-gameday lacks {name!r}; searched for in {searched}. "
        "Reinstall it (pip install --force-reinstall gpu-gameday), or work from a whole checkout"
    )
