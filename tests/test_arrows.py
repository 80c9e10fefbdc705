"""Every import between our rooms is an arrow that ARCHITECTURE.md allows, and packages come in by doors only."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| `([\w/.]+)` \| .* \| ([^|]+) \|$", re.MULTILINE)
TABLE = {
    re.sub(r"^gameday/|/$|\.py$", "", folder): may
    for folder, may in ROW.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
}
EVERYBODYS = {"clock", "shipped", "errors", "exit_codes", "plain_file", "plugins", "text"}
CORE = ("gameday", "flows", "tasks")
PROJECTS = {
    next(path.name for path in file.parent.iterdir() if (path / "__init__.py").exists() and path.name != "tests"): file
    for file in sorted(ROOT.glob("packages/*/pyproject.toml"))
}
"""Each package's project file, by the name that it is imported by."""
DOORS = set((ROOT / "packages" / "doors.txt").read_text(encoding="utf-8").split())


@cache
def allowed(room: str) -> frozenset[str]:
    named = frozenset(TABLE[room].split(", ")) - {"–"}
    return named.union(EVERYBODYS - {room}, *(allowed(one) for one in named))


def room_of(module: str) -> str:
    """Return the room of a module; what judges an expectation stands in its folder, and is one of the checks."""
    parts = module.split(".")
    if parts[:2] == ["gameday", "expect"] and (ROOT.joinpath(*parts[:4]).with_suffix(".py")).exists() and parts[3:]:
        return "checks"
    return parts[1] if parts[0] == "gameday" and len(parts) > 1 else parts[0]


def modules_imported(path: Path) -> Iterator[str]:
    """Yield the modules of ours that a file imports; for a name of a module, the module with the name."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (module for module in modules if module.split(".")[0] in {*CORE, *PROJECTS})


@cache
def imports() -> tuple[tuple[str, str, str], ...]:
    """(file, its room, what it imports) for every import of the core."""
    return tuple(
        (str(path.relative_to(ROOT)), room_of(".".join(path.relative_to(ROOT).with_suffix("").parts)), module)
        for folder in CORE
        for path in sorted((ROOT / folder).rglob("*.py"))
        for module in modules_imported(path)
        if module != "gameday.__version__"
    )


def test_every_import_is_in_the_table() -> None:
    wrong = [
        f"{file}: {room} may not import {module}"
        for file, room, module in imports()
        if room_of(module) not in {room, *(allowed(room) if room in TABLE else ())}
    ]
    assert wrong == []


def test_every_room_has_a_row() -> None:
    assert {room for _, room, _ in imports()} <= TABLE.keys()


def door_of(module: str) -> str:
    """Return the module that a name is from; for a public name, `gameday`."""
    parts = module.split(".")
    is_module = (ROOT.joinpath(*parts).with_suffix(".py")).exists() or ROOT.joinpath(*parts).is_dir()
    return module if is_module else ".".join(parts[:-1])


@pytest.mark.parametrize("package", PROJECTS)
def test_a_package_comes_in_by_the_doors(package: str) -> None:
    project = tomllib.loads(PROJECTS[package].read_text(encoding="utf-8"))["project"]
    names = {tomllib.loads(file.read_text(encoding="utf-8"))["project"]["name"]: one for one, file in PROJECTS.items()}
    others = {names[name] for name in project["dependencies"] if name in names}
    found = set()
    for path in sorted((PROJECTS[package].parent / package).rglob("*.py")):
        for module in modules_imported(path):
            top, name = module.split(".")[0], module.rpartition(".")[2]
            if top not in {package, *others} and (door_of(module) not in DOORS or name.startswith("_")):
                found.add(f"{path.relative_to(ROOT)}: {module}")
    assert found - {one for one in found if one.endswith("gameday.__version__")} == set()


def test_every_door_is_used() -> None:
    paths = [path for package, file in PROJECTS.items() for path in (file.parent / package).rglob("*.py")]
    assert {door_of(module) for path in paths for module in modules_imported(path)} >= DOORS


def test_flows_and_tasks_are_imported_as_parts_of_gameday() -> None:
    by_bare_name = re.compile(r"^\s*(?:from|import) (?:flows|tasks)\b", re.MULTILINE)
    found = [
        str(path.relative_to(ROOT))
        for folder in (*CORE, "packages", "tests", "benchmarks", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if by_bare_name.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("room", sorted(TABLE.keys() - EVERYBODYS))
def test_no_arrow_leads_back(room: str) -> None:
    assert room not in allowed(room)
