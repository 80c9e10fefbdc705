from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import fsspec
import pytest

from gameday import cli
from gameday.archive.catalog import read_shelf
from gameday.archive.publish import publish, remove, retention
from gameday.errors import PublishError
from gameday.history.events import RunEnded, RunStarted
from gameday.report.notes import FORM, NOTES_FILE
from gameday.values.results import Cleanliness
from tests.report.run_builder import START, Timed, cut_off, passing, replacing, without, write

NOW = START + timedelta(days=365)


def named(folder: Path, id: str, events: list[Timed] | None = None) -> Path:
    timed = replacing(events or passing(), lambda e: isinstance(e, RunStarted), run_id=id)
    return write(folder / id, timed)


def test_a_run_is_copied_whole_into_any_file_system(tmp_path: Path) -> None:
    run = named(tmp_path, "r1")
    (run / "frames").mkdir()
    (run / "frames" / "metrics.parquet").write_bytes(b"\0parquet")
    link = publish(run, "memory://bucket/gamedays")
    memory = fsspec.filesystem("memory")
    assert link.endswith("/bucket/gamedays/r1")
    assert memory.cat("/bucket/gamedays/r1/frames/metrics.parquet") == b"\0parquet"
    assert memory.cat("/bucket/gamedays/r1/history.jsonl") == (run / "history.jsonl").read_bytes()


def test_a_folder_of_this_machine_is_a_url_too(tmp_path: Path) -> None:
    publish(named(tmp_path, "r1"), f"file://{tmp_path}/out")
    assert (tmp_path / "out" / "r1" / "history.jsonl").is_file()


def test_copying_again_renews_the_copy_but_never_replaces_another_run(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/out"
    run = named(tmp_path / "a", "r1")
    publish(run, url)
    (run / "report.html").write_text("new")
    publish(run, url)
    assert (tmp_path / "out" / "r1" / "report.html").read_text() == "new"
    other = named(tmp_path / "b", "r1", replacing(passing(), lambda e: isinstance(e, RunStarted), cluster="other"))
    with pytest.raises(PublishError, match="another run"):
        publish(other, url)


@pytest.mark.parametrize("url", ["nosuch://x/y", "file:///proc/nowhere"])
def test_a_place_that_cannot_be_used_says_so(tmp_path: Path, url: str) -> None:
    with pytest.raises(PublishError, match=url[:6]):
        publish(named(tmp_path, "r1"), url)


def judged(folder: Path, keep: int = 1, days: int = 30) -> dict[str, bool]:
    verdicts = retention(read_shelf(folder), keep, timedelta(days=days), NOW)
    return {verdict.run.folder.name: verdict.goes for verdict in verdicts}


def later(events: list[Timed], seconds: float) -> list[Timed]:
    return [Timed(timed.seconds + seconds, timed.event) for timed in events]


def test_the_newest_runs_of_a_plan_stay_and_the_older_go(tmp_path: Path) -> None:
    for i in range(3):
        named(tmp_path, f"r{i}", later(passing(), 1000 * i))
    assert judged(tmp_path, keep=2) == {"r0": True, "r1": False, "r2": False}


def test_each_cluster_keeps_its_own_newest_runs(tmp_path: Path) -> None:
    for i, cluster in enumerate(("prod", "staging", "staging")):
        of_cluster = replacing(passing(), lambda e: isinstance(e, RunStarted), cluster_id=cluster)
        named(tmp_path, f"r{i}", later(of_cluster, 1000 * i))
    assert judged(tmp_path) == {"r0": False, "r1": True, "r2": False}


@pytest.mark.parametrize(
    ("notes", "goes"),
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
def test_what_people_wrote_of_a_run_stays(tmp_path: Path, notes: str, goes: bool) -> None:
    for i in range(2):
        named(tmp_path, f"r{i}", later(passing(), 1000 * i))
    (tmp_path / "r0" / NOTES_FILE).write_text(notes, errors="surrogateescape")
    assert judged(tmp_path)["r0"] is goes


def test_what_is_young_enough_stays(tmp_path: Path) -> None:
    for i in range(2):
        named(tmp_path, f"r{i}", later(passing(), 1000 * i))
    assert not any(judged(tmp_path, days=400).values())


@pytest.mark.parametrize("state", [Cleanliness.DIRTY, Cleanliness.UNKNOWN])
def test_the_evidence_of_an_unclean_cluster_stays_for_good(tmp_path: Path, state: Cleanliness) -> None:
    named(tmp_path, "old", replacing(passing(), lambda e: isinstance(e, RunEnded), cleanliness=state))
    named(tmp_path, "new", later(passing(), 1000))
    assert judged(tmp_path)["old"] is False


def test_a_run_whose_history_is_open_may_be_running(tmp_path: Path) -> None:
    named(tmp_path, "old", without(passing(), lambda e: isinstance(e, RunEnded)))
    named(tmp_path, "killed", cut_off(passing(), 5))
    named(tmp_path, "new", later(passing(), 1000))
    assert not any(judged(tmp_path).values())


def test_a_folder_that_somebody_named_stays(tmp_path: Path) -> None:
    write(tmp_path / "sample", passing())
    named(tmp_path, "new", later(passing(), 1000))
    assert judged(tmp_path)["sample"] is False


def test_pruning_is_dry_until_it_is_told_to_delete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(2):
        named(tmp_path, f"r{i}", later(passing(), 1000 * i))
    argv = ["prune", str(tmp_path), "--keep", "1", "--days", "0"]
    assert cli.run(argv) == 0
    assert (tmp_path / "r0").is_dir()
    assert "would go r0" in capsys.readouterr().out
    assert cli.run([*argv, "--delete"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["r1"]


def test_removing_touches_only_what_may_go(tmp_path: Path) -> None:
    named(tmp_path, "r0")
    remove(retention(read_shelf(tmp_path), 1, timedelta(), datetime.now(UTC)))
    assert (tmp_path / "r0").is_dir()
