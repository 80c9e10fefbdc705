"""The section `repair` of a policy file: its defaults are those on the page, and a mistake is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.errors import DocumentError
from gameday.shipped import checkout
from gameday_health.episodes.policy import RepairPolicy
from gameday_health.policy_files import load_policy, shipped_policies

PAGE = checkout() / "docs" / "node-repair.md"


def with_repair(folder: Path, repair: str) -> Path:
    """The default policy with another section `repair`."""
    file = folder / "default.yaml"
    file.write_text(f"{shipped_policies()['default'].read_text(encoding='utf-8')}\n{repair}", encoding="utf-8")
    return file


def test_the_page_shows_the_default_repair(tmp_path: Path) -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("```yaml\n")
    file = with_repair(tmp_path, rest.partition("```")[0])
    assert load_policy(str(file)).policy.repair == RepairPolicy() == load_policy().policy.repair


def test_a_mistake_is_named_with_its_line(tmp_path: Path) -> None:
    file = with_repair(tmp_path, "repair:\n  drain:\n    mode: shove\n")
    line = len(file.read_text(encoding="utf-8").splitlines())
    with pytest.raises(DocumentError, match=rf"default.yaml:{line}") as raised:
        load_policy(str(file))
    assert "evict" in str(raised.value)
