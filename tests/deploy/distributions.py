"""The distributions that are built from this repository, and the module that each holds."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tests.deploy.manifests import ROOT


def project_of(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


PACKAGES = {project_of(file.parent)["name"]: file.parent for file in sorted(ROOT.glob("packages/*/pyproject.toml"))}
"""The folders of those on top of the core."""
PROJECTS = {"gpu-gameday": ROOT, **PACKAGES}


def module_of(package: str) -> Path:
    (module,) = {file.parent for file in PACKAGES[package].glob("*/__init__.py")} - {PACKAGES[package] / "tests"}
    return module
