from __future__ import annotations

import errno
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from gameday import cli
from gameday.history.events import RunEnded, RunStarted
from gameday.report.notes import FORM, NOTES_FILE
from gameday.runs.catalog import read_catalog
from gameday.runs.retention import decide_retention
from gameday.values.results import Cleanliness
from tests.report.run_builder import START, Timed, cut_off, passing, replacing, without, write
from tests.runs.row_builders import run_named

NOW = START + timedelta(days=365)


def deletable(folder: Path, keep: int = 1, days: int = 30) -> dict[str, bool]:
    decisions = decide_retention(read_catalog(folder), keep, timedelta(days=days), NOW)
    return {decision.folder.name: decision.deletable for decision in decisions}


def later(events: list[Timed], seconds: float) -> list[Timed]:
    return [Timed(timed.seconds + seconds, timed.event) for timed in events]


def test_the_newest_runs_of_a_plan_stay_and_older_ones_are_deletable(tmp_path: Path) -> None:
    for i in range(3):
        run_named(tmp_path, f"r{i}", later(passing(), 1000 * i))
    assert deletable(tmp_path, keep=2) == {"r0": True, "r1": False, "r2": False}


def test_each_cluster_keeps_its_own_newest_runs(tmp_path: Path) -> None:
    for i, cluster in enumerate(("prod", "staging", "staging")):
        of_cluster = replacing(passing(), lambda e: isinstance(e, RunStarted), cluster_id=cluster)
        run_named(tmp_path, f"r{i}", later(of_cluster, 1000 * i))
    assert deletable(tmp_path) == {"r0": False, "r1": True, "r2": False}


@pytest.mark.parametrize(
    ("notes", "is_deletable"),
    [
        (FORM.replace("{command}", "gameday report somewhere"), True),
        (FORM.replace('summary: ""  ', 'summary: "the rack was hot"'), False),
        (FORM + "# call the vendor\n", False),
        ("actions: [{what: page on Xid 95}]", False),
        ("summary: [", False),
        ("\udcff", False),
    ],
    ids=["form", "summary", "comment", "action", "broken", "no-text"],
)
def test_a_run_stays_when_people_wrote_about_it(tmp_path: Path, notes: str, is_deletable: bool) -> None:
    for i in range(2):
        run_named(tmp_path, f"r{i}", later(passing(), 1000 * i))
    (tmp_path / "r0" / NOTES_FILE).write_text(notes, errors="surrogateescape")
    assert deletable(tmp_path)["r0"] is is_deletable


def test_a_young_run_stays(tmp_path: Path) -> None:
    for i in range(2):
        run_named(tmp_path, f"r{i}", later(passing(), 1000 * i))
    assert not any(deletable(tmp_path, days=400).values())


@pytest.mark.parametrize("state", [Cleanliness.DIRTY, Cleanliness.UNKNOWN])
def test_the_evidence_of_an_unclean_cluster_always_stays(tmp_path: Path, state: Cleanliness) -> None:
    run_named(tmp_path, "old", replacing(passing(), lambda e: isinstance(e, RunEnded), cleanliness=state))
    run_named(tmp_path, "new", later(passing(), 1000))
    assert deletable(tmp_path)["old"] is False


def test_a_run_whose_history_is_not_closed_stays(tmp_path: Path) -> None:
    run_named(tmp_path, "old", without(passing(), lambda e: isinstance(e, RunEnded)))
    run_named(tmp_path, "killed", cut_off(passing(), 5))
    run_named(tmp_path, "new", later(passing(), 1000))
    assert not any(deletable(tmp_path).values())


def test_a_renamed_folder_stays(tmp_path: Path) -> None:
    write(tmp_path / "renamed", passing())
    run_named(tmp_path, "new", later(passing(), 1000))
    assert deletable(tmp_path)["renamed"] is False


def test_prune_deletes_nothing_without_the_delete_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(2):
        run_named(tmp_path, f"r{i}", later(passing(), 1000 * i))
    argv = ["prune", str(tmp_path), "--keep", "1", "--days", "0"]
    assert cli.run(argv) == 0
    assert (tmp_path / "r0").is_dir()
    assert "would go r0" in capsys.readouterr().out
    assert cli.run([*argv, "--delete"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["r1"]


def test_deletion_keeps_the_runs_that_stay(tmp_path: Path) -> None:
    run_named(tmp_path, "r0")
    assert cli.run(["prune", str(tmp_path), "--keep", "1", "--days", "0", "--delete"]) == 0
    assert (tmp_path / "r0").is_dir()


def test_a_linked_run_stays_and_those_after_it_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere, reports = tmp_path / "elsewhere", tmp_path / "reports"
    run_named(elsewhere, "r1")
    for i in (0, 2):
        run_named(reports, f"r{i}", later(passing(), 1000 * i))
    (reports / "r1").symlink_to(elsewhere / "r1")
    assert cli.run(["prune", str(reports), "--keep", "1", "--days", "0", "--delete"]) == 0
    said = capsys.readouterr().out
    assert "stays    r1: it is a symbolic link, and none is followed here" in said
    assert "deleted  r0: older" in said and "1 of 2 runs" in said
    assert sorted(path.name for path in reports.iterdir()) == ["r1", "r2"]
    assert (elsewhere / "r1" / "history.jsonl").is_file()


def test_a_folder_that_cannot_be_deleted_is_named_and_those_after_it_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(3):
        run_named(tmp_path, f"r{i}", later(passing(), 1000 * i))
    delete = shutil.rmtree

    def busy(folder: Path) -> None:
        if folder.name == "r1":
            raise OSError(errno.EBUSY, "Device or resource busy", str(folder))
        delete(folder)

    monkeypatch.setattr(shutil, "rmtree", busy)
    assert cli.run(["prune", str(tmp_path), "--keep", "1", "--days", "0", "--delete"]) == 64
    said = capsys.readouterr()
    assert f"failed   r1: {tmp_path}/r1: Device or resource busy" in said.out and "1 of 3 runs" in said.out
    assert "1 could not be deleted" in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r1", "r2"]
