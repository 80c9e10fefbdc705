"""Every import between our packages is an arrow that ARCHITECTURE.md allows."""

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
ENGINE = TABLE.keys() - {"flows", "tasks"}
# Rows that name no packages one by one. `rehearsal` is only for the command line and the tests.
WIDE = {
    "flows": TABLE.keys() - {"cli", "rehearsal", "rehearsal/lab"},
    "tasks": ENGINE - {"cli", "rehearsal", "rehearsal/lab"},
    "rehearsal": ENGINE - {"cli"},
    "cli": TABLE.keys(),
}


@cache
def allowed(package: str) -> frozenset[str]:
    if package in WIDE:
        return frozenset(WIDE[package])
    named = frozenset(TABLE[package].split(", ")) - {"–"}
    return named.union({"shipped"} - {package}, *(allowed(one) for one in named))


def package_of(module: str) -> str:
    """The row of a module, or what stands for one that is in none."""
    parts = module.removeprefix("gameday.").split(".")
    return "/".join(parts[:2]) if "/".join(parts[:2]) in TABLE else parts[0]


@cache
def imports() -> tuple[tuple[str, str, str], ...]:
    """(file, its package, a package of ours that it imports) for every import."""
    return tuple(_imports())


def _imports() -> Iterator[tuple[str, str, str]]:
    for path in sorted(path for folder in ("gameday", "flows", "tasks") for path in (ROOT / folder).rglob("*.py")):
        file = path.relative_to(ROOT)
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module == "gameday":
                modules = [f"gameday.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            else:
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                if re.match(r"(gameday|flows|tasks)\.", module):
                    yield str(file), package_of(".".join(file.with_suffix("").parts)), package_of(module)


def test_every_import_is_in_the_table() -> None:
    wrong = [
        f"{file}: {package} may not import {imported}"
        for file, package, imported in imports()
        if package in TABLE and imported not in {package, "__version__", *allowed(package)}
    ]
    assert wrong == []


def test_every_package_has_a_row() -> None:
    assert {package for _, package, _ in imports()} - TABLE.keys() <= {"__init__"}


@pytest.mark.parametrize("package", sorted(TABLE.keys() - WIDE.keys() - {"rehearsal/lab"}))
def test_no_arrow_leads_back(package: str) -> None:
    assert package not in allowed(package)
