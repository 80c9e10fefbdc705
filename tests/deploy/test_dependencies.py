"""Each distribution declares what it imports, and one lock holds what all of them need."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.distributions import PACKAGES, PROJECTS, module_of, project_of
from tests.deploy.manifests import ROOT

OURS = {"gameday": ["gpu-gameday"], **{module_of(name).name: [name] for name in PACKAGES}}
PROVIDERS = {**packages_distributions(), **OURS}
"""The distributions that have a module of this name at their top."""
FOLDERS = {"gpu-gameday": [ROOT / "gameday", ROOT / "flows", ROOT / "tasks"]}


def _imported(path: Path) -> Iterator[str]:
    """Yield the first part of each imported module that is not of Python's own library."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from {module.partition(".")[0] for module in modules} - sys.stdlib_module_names


@pytest.mark.parametrize("name", PROJECTS)
def test_each_module_that_a_distribution_imports_is_of_one_that_it_depends_on(name: str) -> None:
    declared = {Requirement(one).name for one in project_of(PROJECTS[name])["dependencies"]} | {name}
    wanted = {canonicalize_name(one) for one in declared}
    missing = {
        f"{path.relative_to(ROOT)}: {module}"
        for folder in FOLDERS.get(name) or [module_of(name)]
        for path in folder.rglob("*.py")
        for module in _imported(path)
        if not wanted & {canonicalize_name(one) for one in PROVIDERS.get(module, ())}
    }
    assert missing == set()


def test_the_lock_has_what_each_distribution_depends_on_and_none_of_ours() -> None:
    locked = set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.M))
    wanted = {Requirement(one).name for folder in PROJECTS.values() for one in project_of(folder)["dependencies"]}
    assert {canonicalize_name(one) for one in wanted} - locked == wanted & PROJECTS.keys()
    assert "-e " not in (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_a_distribution_of_ours_is_taken_from_the_workspace() -> None:
    uv = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"]
    wanted = {Requirement(one).name for folder in PROJECTS.values() for one in project_of(folder)["dependencies"]}
    assert uv["sources"] == {name: {"workspace": True} for name in wanted & PROJECTS.keys()}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_is_named_after_its_folder(name: str) -> None:
    """As `make lock` takes it."""
    assert name == f"gpu-gameday-{PACKAGES[name].name}"
