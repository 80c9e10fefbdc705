"""Every import between our rooms is an arrow that ARCHITECTURE.md allows."""

from __future__ import annotations

import ast
import re
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
PACKAGES = ("gameday", "flows", "tasks", "kubesim")


@cache
def allowed(room: str) -> frozenset[str]:
    named = frozenset(TABLE[room].split(", ")) - {"–"}
    everybodys = frozenset() if room == "kubesim" else EVERYBODYS - {room}
    return named.union(everybodys, *(allowed(one) for one in named))


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if parts[0] == "gameday" and len(parts) > 1 else parts[0]


@cache
def imports() -> tuple[tuple[str, str, str], ...]:
    """(file, its room, a room of ours that it imports) for every import."""
    return tuple(_imports())


def _imports() -> Iterator[tuple[str, str, str]]:
    for path in sorted(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")):
        file = path.relative_to(ROOT)
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module == "gameday":
                modules = [f"gameday.{alias.name}" for alias in node.names if alias.name != "__version__"]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            else:
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                if module.split(".")[0] in PACKAGES:
                    yield str(file), room_of(".".join(file.with_suffix("").parts)), room_of(module)


def test_every_import_is_in_the_table() -> None:
    wrong = [
        f"{file}: {room} may not import {imported}"
        for file, room, imported in imports()
        if imported not in {room, *(allowed(room) if room in TABLE else ())}
    ]
    assert wrong == []


def test_every_room_has_a_row() -> None:
    assert {room for _, room, _ in imports()} == TABLE.keys() & {room for _, room, _ in imports()}


def test_flows_and_tasks_are_imported_as_parts_of_gameday() -> None:
    by_bare_name = re.compile(r"^\s*(?:from|import) (?:flows|tasks)\b", re.MULTILINE)
    found = [
        str(path.relative_to(ROOT))
        for folder in (*PACKAGES, "tests", "benchmarks", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if by_bare_name.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("room", sorted(TABLE.keys() - EVERYBODYS))
def test_no_arrow_leads_back(room: str) -> None:
    assert room not in allowed(room)
