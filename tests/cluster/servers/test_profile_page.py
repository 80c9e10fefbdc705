"""The page on the cluster profile agrees with its classes, and its example can be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gameday.cluster.docs import EXAMPLE, page
from gameday.cluster.profile import ClusterGuardrails, ClusterProfile, Endpoint, Freeze, load_profile
from gameday.plan.limits import Approval, TimeWindow

PUBLISHED = Path(__file__).parents[3] / "docs" / "profile.md"


PAGE = PUBLISHED.read_text(encoding="utf-8")


def test_the_published_page_is_current() -> None:
    assert page() == PAGE, "run: make docs"


@pytest.mark.parametrize("model", [ClusterProfile, Endpoint, ClusterGuardrails, TimeWindow, Freeze, Approval])
def test_every_key_is_described_on_the_page(model: type[ClusterProfile]) -> None:
    for key, of in model.model_fields.items():
        assert of.description, f"{model.__name__}.{key} has no docstring"
        assert f"\n* `{key}` (" in PAGE


def test_the_example_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GAMEDAY_")]:
        monkeypatch.delenv(name)
    (tmp_path / "profile.yaml").write_text(EXAMPLE, encoding="utf-8")
    loaded = load_profile(tmp_path / "profile.yaml")
    assert loaded.name == "prod-eu-1"
    assert loaded.guardrails.freezes[0].since.isoformat() == "2026-12-18T00:00:00+01:00"
