"""A run that a guest watched: who watched is said everywhere, and its output is in the appendix, escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gameday.history.events import GuestNamed, GuestSpoke
from gameday.report.render import render
from gameday.report.run_folder import RunFolder, load_run_folder
from gameday.report.sections import identity
from gameday.report.summarise import summarise
from tests.report import run_builder as build
from tests.report.page import drawn

WATCHED_BY = "npd v1 (commit 6632ca6), a guest of the rehearsal"
NAMED = build.Timed(0.5, GuestNamed(name="npd", version="v1 (commit 6632ca6)", says="fault"))
SPOKE = build.Timed(
    build.FAULT_AT + 1, GuestSpoke(node=build.NODE, line=f"fault on {build.NODE}", at=build.at(build.FAULT_AT + 1))
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build.write(tmp_path, [*build.passing(), NAMED, SPOKE])
    (tmp_path / "guest").mkdir()
    lines = [*(f"line {number}" for number in range(250)), f"<script>alert(1)</script> {build.NODE} token=abcdefghij"]
    (tmp_path / "guest" / f"{build.NODE}.log").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_guest_is_named_as_the_detector_that_watched(folder: Path) -> None:
    run = load_run_folder(folder)
    summary = summarise(run)
    assert identity.build(run).detector == WATCHED_BY
    assert summary is not None
    assert summary.detector == WATCHED_BY


def test_the_output_is_escaped_cut_and_without_secrets(folder: Path) -> None:
    page = drawn(folder, "appendix", "timeline")[0].html
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert(1)" not in page
    assert "51 earlier lines are left out" in page
    assert "abcdefghij" not in page
    assert f"About {build.NODE}: fault on {build.NODE}" in page


def test_a_redacted_report_names_no_node_in_the_output(folder: Path) -> None:
    rendered = render(folder, datetime.now(UTC), redact=True)
    assert build.NODE not in rendered.html.read_text()
    assert [one.instance for one in rendered.run.guest_output] == ["node-1"]


def test_the_output_is_among_the_runs_files(folder: Path) -> None:
    run: RunFolder = load_run_folder(folder)
    assert f"guest/{build.NODE}.log" in [file.name for file in run.files]
