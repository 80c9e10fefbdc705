"""Symbolic links in a run's folder, which may come from somebody else: nothing that they name is shown or changed."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gameday import cli
from gameday.errors import PublishError
from gameday.history.events.guests import GUEST_FOLDER
from gameday.history.journal import Journal
from gameday.plain_file import open_plain, read_plain, write_whole
from gameday.report.render import load_with_its_past, render
from gameday.runs.comparison_record import ComparisonRecord
from gameday.runs.publish import publish
from tests.report import run_builder as build
from tests.report.run_builder import START

SECRET, PRECIOUS = "SECRET of another file", "keep me"
ROOT = Path(__file__).parents[2]
OF_RUN_FOLDERS = (
    "gameday/history",
    "gameday/post_mortem",
    "gameday/report",
    "gameday/run",
    "gameday/runs",
    "packages/fleet/gameday_fleet",
)
OWN_FILES = {"gameday/runs/index.py", "gameday/report/page.py"}
"""These read our own code and templates as well."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = build.write(tmp_path / "evil", build.passing(), build.frames())
    (folder / GUEST_FOLDER).mkdir()
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "precious.txt").write_text(PRECIOUS)
    return folder


def link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    "name", ["plan.yaml", "plan.json", "history.jsonl", "notes.yaml", "frames/metrics.parquet", f"{GUEST_FOLDER}/a.log"]
)
def test_a_file_that_is_a_link_is_named_and_not_read(run: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    link(run / name, run.parent / "secret.txt")
    cli.run(["report", str(run)])
    page = (run / "report.html").read_text()
    assert SECRET not in page and SECRET not in (run / "report.json").read_text() + capsys.readouterr().out
    assert any(name in problem and "symbolic link" in problem for problem in load_with_its_past(run).problems)


@pytest.mark.parametrize("name", ["frames", GUEST_FOLDER])
def test_a_folder_that_is_a_link_is_named_and_not_read(run: Path, name: str) -> None:
    (run / name / "a.log").write_text(SECRET)
    (run / name).rename(run.parent / "elsewhere")
    (run / name).symlink_to(run.parent / "elsewhere")
    rendered = render(run, START)
    assert SECRET not in rendered.html.read_text() and rendered.run.frames.metrics.empty == (name == "frames")
    assert all(not file.name.startswith(f"{name}/") for file in rendered.run.files)
    assert any(problem.startswith(f"{name} is a symbolic link") for problem in rendered.run.problems)


@pytest.mark.parametrize(
    "name", ["report.html", "report.json", "verdicts.json", "coverage-row.json", "notes.yaml", "report-redacted.html"]
)
def test_a_page_that_is_a_link_is_refused_and_named(run: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    missing = run.parent / "made-through-a-link.txt"
    link(run / name, missing if name == "notes.yaml" else run.parent / "precious.txt")
    assert cli.run(["report", str(run), *(["--redact"] if "redacted" in name else [])]) == 64
    assert f"{run}/{name}: it is a symbolic link" in capsys.readouterr().err.replace("\n", "")
    assert (run.parent / "precious.txt").read_text() == PRECIOUS and not missing.exists()


def test_a_page_that_is_a_hard_link_loses_it_and_the_other_name_keeps_its_words(run: Path) -> None:
    (run / "report.html").hardlink_to(run.parent / "precious.txt")
    render(run, START)
    assert (run.parent / "precious.txt").read_text() == PRECIOUS and "<html" in (run / "report.html").read_text()


def test_nothing_is_added_to_a_history_that_is_a_link(run: Path) -> None:
    link(run / "history.jsonl", run.parent / "precious.txt")
    with pytest.raises(OSError, match="symbolic link"):
        Journal(run / "history.jsonl")
    assert (run.parent / "precious.txt").read_text() == PRECIOUS


@pytest.mark.parametrize("name", ["leak.txt", "frames/leak.parquet", "elsewhere"])
def test_a_folder_with_a_link_is_not_published(run: Path, name: str) -> None:
    (run / name).symlink_to(run.parent / "secret.txt" if "leak" in name else run.parent)
    with pytest.raises(PublishError, match=f"{name} is a symbolic link"):
        publish(run, (run.parent / "published").as_uri())
    assert not (run.parent / "published").exists()


@pytest.mark.parametrize("command", ["index", "digest"])
def test_a_page_of_the_reports_folder_that_is_a_link_is_refused(
    run: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = run.parent
    link(reports / f"{command}.html", reports / "precious.txt")
    assert cli.run([command, str(reports)]) == 64
    assert f"{command}.html: it is a symbolic link" in capsys.readouterr().err
    assert (reports / "precious.txt").read_text() == PRECIOUS


def test_a_comparison_names_no_folder_outside_its_own(tmp_path: Path) -> None:
    shipped = '{"id": "arms-x", "runs": [{"run_id": "../../elsewhere", "plan": "p", "asked_as": "p", "targets": []}]}'
    (tmp_path / "arms.json").write_text(shipped)
    with pytest.raises(ValueError, match=r"runs\.0\.run_id"):
        ComparisonRecord.load(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "plan.yaml")
    with pytest.raises(OSError, match="not a regular file"):
        open_plain(tmp_path / "plan.yaml")


def test_a_file_is_written_with_the_rights_of_any_other_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "a", "one")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    write_whole(tmp_path / "a", b"two")
    assert read_plain(tmp_path / "a") == b"two" and list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_whatever_reads_or_writes_run_folders_does_it_by_these_functions() -> None:
    following = {"open", "read_bytes", "read_text", "write_bytes", "write_text"}
    files = [path for room in OF_RUN_FOLDERS for path in (ROOT / room).rglob("*.py")]
    found = {
        path.relative_to(ROOT).as_posix()
        for path in files
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in following
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "os")
    }
    assert found == OWN_FILES
