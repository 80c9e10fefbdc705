"""The page on the faults is what their classes say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gameday.faults.docs import page
from gameday.faults.registry import known_faults

TARGET = "NVML index of the GPU; None: the one the run chose."  # said once, at the head of the page
PUBLISHED = Path(__file__).parents[2] / "docs" / "faults.md"


@pytest.fixture(scope="module")
def made() -> str:
    return page()


def test_the_published_page_is_current(made: str) -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == made, "run: make docs"


@pytest.mark.parametrize("name", sorted(known_faults()))
def test_a_section_names_reach_readers_dangers_and_parameters(made: str, name: str) -> None:
    fault = known_faults()[name]
    section = made.partition(f"### {name}\n")[2].partition("\n### ")[0]
    layer = next(part for part in made.split("\n## ") if f"### {name}\n" in part)
    assert fault.does_not_reach in layer
    assert "; ".join(fault.seen_by) in layer
    assert ("**Dangerous:**" in section) == bool(fault.parameters.dangerous)
    for parameter, of in fault.parameters.model_fields.items():
        if parameter not in ("type", "hold") and (parameter, of.description) != ("gpu", TARGET):
            meaning = " ".join((of.description or "").split())
            assert meaning, f"{parameter} has no docstring"
            where = section if f"* `{parameter}` (" in section else layer.partition("\n### ")[0]
            assert re.search(rf"^\* `{parameter}` \(.*\): {re.escape(meaning)}$", where, re.MULTILINE), parameter
            assert f"`{parameter}`" in section
