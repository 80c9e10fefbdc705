"""No module of the rehearsal imports itself by way of others, not even for its types."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import gameday_rehearsal

ROOT = Path(gameday_rehearsal.__file__).parents[1]


def _imported(path: Path) -> set[str]:
    nodes = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ImportFrom)]
    return {name for node in nodes for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))}


def _circle(imports: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "gameday_rehearsal").rglob("*.py")
    }
    assert _circle({module: _imported(path) & paths.keys() for module, path in paths.items()}) == []


def test_a_circle_is_found() -> None:
    assert set(_circle({"kubelet": {"pod"}, "pod": {"kubelet"}, "node": {"pod"}})) == {"kubelet", "pod"}
