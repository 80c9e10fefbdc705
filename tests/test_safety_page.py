"""docs/safety.md: every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "safety.md").read_text(encoding="utf-8")


def test_every_file_of_tests_that_it_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", PAGE)
    assert named and [path for path in named if not (ROOT / path).exists()] == []


def test_every_test_that_it_names_is_there() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    known = set(re.findall(r"^\s*(?:async )?def (test_\w+)\(", tests, re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert named and named - known == set()


@pytest.mark.parametrize("section", ["Who can do harm, and how much"])
def test_each_row_of_harm_names_a_test(section: str) -> None:
    (table,) = re.findall(rf"^## {section}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 5 and [row for row in rows if "`test_" not in row] == []
