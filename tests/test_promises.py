"""Pages that promise something: every test that they name is there, and each promise of a table names one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.fast_suite import files_of_tests

ROOT = Path(__file__).parents[1]
TABLES = {
    "safety.md": "Who can do harm, and how much",
    "node-health.md": "What the controller promises",
    "node-repair.md": "What the repairer promises",
    "guardrails.md": "What holds this",
    "post-mortem.md": "What holds this",
}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@cache
def known_tests() -> frozenset[str]:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in files_of_tests())
    return frozenset(re.findall(r"^\s*(?:async )?def (test_\w+)\(", tests, re.MULTILINE))


@pytest.mark.parametrize("name", TABLES)
def test_every_test_and_file_of_tests_that_a_page_names_is_there(name: str) -> None:
    files = re.findall(r"`(tests/[\w/.]+)`", page(name))
    assert [path for path in files if not (ROOT / path).exists()] == []
    named = set(re.findall(r"`(test_\w+)`", page(name)))
    assert named and named - known_tests() == set()


@pytest.mark.parametrize(("name", "section"), TABLES.items())
def test_each_row_of_a_table_of_promises_names_a_test(name: str, section: str) -> None:
    (table,) = re.findall(rf"^## {section}\n(.*?)(?:^## |\Z)", page(name), re.MULTILINE | re.DOTALL)
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 5 and [row for row in rows if "`test_" not in row] == []
