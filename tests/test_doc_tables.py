"""Tables in the documentation hold words; paragraphs belong under them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
MOST_WORDS = 25
"""In one cell: about two lines of a column as wide as half a page."""


def long_cells(text: str) -> list[str]:
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    return [cell for cell in cells if len(cell.split()) > MOST_WORDS]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_no_cell_of_a_table_holds_a_paragraph(page: Path) -> None:
    assert long_cells(page.read_text(encoding="utf-8")) == []
