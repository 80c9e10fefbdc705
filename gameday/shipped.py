"""Where the files are that people read and edit: plans, templates, manifests.

They stand at the top of the repository, where a person looks for them; the
wheel carries the same folders inside the package (pyproject.toml says so), for
names as plain as these belong to nobody in an environment of many packages.
Everything that needs one of them asks here, so that no other module knows
there are two places.

Only the standard library is imported here: `scripts/setup.py` comes by.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from gameday.errors import IncompleteInstallationError

_PACKAGE = Path(__file__).parent
_INSTALLED = _PACKAGE / "_shipped"
"""Only in an installed package: the target of pyproject.toml's force-include."""


def checkout() -> Path | None:
    """The top of the repository this package is used from; None where it is installed."""
    root = _PACKAGE.parent
    return root if not _INSTALLED.is_dir() and (root / "pyproject.toml").is_file() else None


def shipped(kind: Literal["plans", "templates", "deploy"]) -> Path:
    """The folder of the repository by this name, wherever it is; raises IncompleteInstallationError."""
    # The package's own first: beside an installed one, a folder of this name is somebody else's.
    places = (_INSTALLED / kind, _PACKAGE.parent / kind)
    for place in places:
        if place.is_dir():
            return place
    looked = " and ".join(map(str, places))
    raise IncompleteInstallationError(
        f"this installation of gpu-gameday lacks its folder {kind!r}; looked for {looked}. "
        "Install it anew (pip install --force-reinstall gpu-gameday), or work from a whole checkout"
    )
