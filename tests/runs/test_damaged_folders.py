"""Run folders that somebody edited, tore or forged: one of them costs no page the other runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gameday.report.run_folder import load_run_folder, with_notes
from gameday.runs.catalog import read_catalog
from gameday.runs.run_row import render_run
from tests.report.run_builder import passing, write
from tests.support.memory_folder import memory_folder
from tests.support.mutated import Change, changed, changes

NOTES = {"summary": "It held.", "actions": [{"what": "Lower the bound", "due": "2026-04-01", "state": "open"}]}
FILES = ("history.jsonl", "plan.json", "notes.yaml", "report.json")
Damage = tuple[int, list[Change], int | None]
"""Number of the file, changes to its JSON, and where it is cut off."""
DAMAGES = st.tuples(
    st.sampled_from([0, 0, 0, 1, 2, 3]),
    st.lists(changes(st.integers(0, 80)), max_size=3),
    st.sampled_from([None] * 5 + [0, 300]),
)


@pytest.fixture(scope="module")
def reports() -> Iterator[Path]:
    """A folder with one run that passed, and its report."""
    with memory_folder() as folder:
        good = write(folder / "good", passing())
        (good / "notes.yaml").write_text(json.dumps(NOTES))
        render_run(good, datetime(2026, 3, 4, tzinfo=UTC))
        yield folder


def damage(reports: Path, damages: list[Damage]) -> Path:
    """Put a damaged copy beside the good run."""
    bad = reports / "bad"
    shutil.rmtree(bad, ignore_errors=True)
    shutil.copytree(reports / "good", bad)
    for file, made, cut in damages:
        path = bad / FILES[file]
        lines = path.read_text().splitlines() if file == 0 else [path.read_text()]
        try:
            found: Any = [json.loads(line) for line in lines]
        except ValueError:  # it was cut off before
            continue
        found = found if file == 0 else found[0]
        for change in made:
            found = changed(found, change)
        lines = list(map(json.dumps, found)) if file == 0 and isinstance(found, list) else [json.dumps(found)]
        path.write_text("\n".join(lines)[:cut])
    return bad


@given(st.lists(DAMAGES, min_size=1, max_size=3))
@settings(max_examples=40)
def test_a_damaged_folder_hides_no_other_run(reports: Path, damages: list[Damage]) -> None:
    bad = damage(reports, damages)
    catalog = read_catalog(reports)
    assert "good" in {run.folder.name for run in catalog.runs}
    assert "bad" in {run.folder.name for run in catalog.runs} or any("bad" in one for one in catalog.unreadable)
    with_notes(bad, load_run_folder(bad))


@pytest.mark.slow
@given(st.lists(DAMAGES, min_size=1, max_size=3))
@settings(max_examples=300)
def test_a_damaged_run_has_a_report(reports: Path, damages: list[Damage]) -> None:
    bad = damage(reports, damages)
    (bad / "report.html").unlink()
    render_run(bad, datetime(2026, 3, 4, tzinfo=UTC))
    assert (bad / "report.html").is_file()
