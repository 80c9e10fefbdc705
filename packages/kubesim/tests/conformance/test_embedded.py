"""kubesim says what the real server said when its answers were recorded.

Without `-m conformance` only some scripts are played; `make test-kubesim` plays all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubesim.conformance import differences, golden
from tests.kubesim.conformance.conftest import Play
from tests.kubesim.conformance.scripts import all_scripts

SCRIPTS = all_scripts()
# One of each area, none of them slow.
ALWAYS = {
    "access_reviews", "admission_of_pods", "apply_ownership", "create_defaults_pods", "delete_with_dependents",
    "evictions_with_budgets", "field_validation", "json_patches", "list_versions", "managed_fields_of_nodes",
    "strategic_patches_of_nodes", "subresource_status", "table_of_nodes", "validation_nodes", "watched_nodes",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ALWAYS else [pytest.mark.conformance]) for name in SCRIPTS]
)
def test_says_what_the_real_server_says(played: Play, name: str) -> None:
    found = differences.compare(golden.read(name), played(name))
    listed = [entry for entry in differences.listed() if entry.script == name]
    new = [str(one) for one in found if not any(entry.covers(name, one) for entry in listed)]
    mended = [entry for entry in listed if not any(entry.covers(name, one) for one in found)]
    assert not new, f"{len(new)} differences that differences.yaml does not list:\n" + "\n".join(new)
    assert not mended, f"mended: delete from differences.yaml: {mended}"


def test_what_is_recorded_is_what_was_said(played: Play, tmp_path: Path) -> None:
    golden.write("json_patches", played("json_patches"), tmp_path)
    assert differences.compare(golden.read("json_patches", tmp_path), played("json_patches")) == []


def test_goldens_and_listed_differences_belong_to_scripts() -> None:
    assert {path.stem for path in golden.GOLDEN.glob("*.jsonl")} == {*SCRIPTS}
    assert {entry.script for entry in differences.listed()} <= {*SCRIPTS}


def test_every_listed_difference_has_a_reason() -> None:
    assert all(len(entry.why.split()) >= 3 for entry in differences.listed())


def test_the_page_shows_the_listed_differences() -> None:
    run = "run: python -m tests.kubesim.conformance.differences"
    assert Path(differences.PAGE).read_text(encoding="utf-8") == differences.page_with_table(), run
