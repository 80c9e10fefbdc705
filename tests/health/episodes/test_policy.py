"""The repair policy's file: its defaults are those on the page, and a mistake is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.errors import DocumentError
from gameday.health.episodes.policy import RepairPolicy, load_repair_policy

PAGE = Path(__file__).parents[3] / "docs" / "node-repair.md"


def test_the_page_shows_the_default_policy(tmp_path: Path) -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("```yaml\n")
    file = tmp_path / "policy.yaml"
    file.write_text(rest.partition("```")[0])
    assert load_repair_policy(file) == RepairPolicy() == load_repair_policy(None)


def test_a_mistake_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("drain:\n  mode: shove\n")
    with pytest.raises(DocumentError, match=r"policy.yaml:2") as raised:
        load_repair_policy(file)
    assert "evict" in str(raised.value)
