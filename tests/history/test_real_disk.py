"""Histories and reports on small file systems that become full, read-only or short of inodes for real."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from gameday.checks.outcome import RunOutcome
from gameday.cli import run as gameday
from gameday.cli.temporary import temporary_folder
from gameday.errors import AbortedError, CommandError, RefusedError
from gameday.flows.game_day import game_day
from gameday.history.durable import RESERVE_BYTES
from gameday.history.events import Aborted, Problem, RunEnded, StepStarted
from gameday.history.journal import Journal, read_history
from gameday.history.room import refused_where_not_written
from gameday.report.render import render
from gameday.run.record import HISTORY_FILE, start_record
from gameday.tasks.report import report
from gameday.values.results import Cleanliness, Step
from tests.support.runs import quick_plan
from tests.support.scripted.game_day import play
from tests.support.scripted.plans import QUICK, loaded
from tests.support.tmpfs import fill, remount, tmpfs

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path, "size=8m") as folder:
        yield folder


def note(journal: Journal, lines: int) -> None:
    for number in range(lines):
        journal.append(Problem(step=None, what=f"{number} {'x' * 1000}"))


def test_the_reserve_takes_the_lines_for_which_there_is_no_other_room(small: Path) -> None:
    journal = Journal(small / HISTORY_FILE, reserve_bytes=RESERVE_BYTES)
    note(journal, 10)
    fill(small)
    note(journal, 100)
    assert journal.failed and journal.failed.errno == errno.ENOSPC
    assert journal.is_whole
    kept = read_history(small / HISTORY_FILE)
    assert (kept.records, kept.damaged) == (journal.history().records, 0)


def test_a_line_that_found_no_room_is_written_once_there_is_some(small: Path) -> None:
    journal = Journal(small / HISTORY_FILE)
    fill(small)
    note(journal, 10)
    assert not journal.is_whole
    fill(small, leave_bytes=100_000)
    note(journal, 1)
    assert journal.is_whole
    assert read_history(small / HISTORY_FILE).records == journal.history().records


def test_a_run_does_not_begin_on_a_read_only_file_system(small: Path) -> None:
    remount(small, "ro")
    words = "read-only file system; mount it writable"
    with pytest.raises(RefusedError, match=words), refused_where_not_written(small):
        start_record("r1", quick_plan(), small)


def test_no_inode_left_is_said_in_inodes(tmp_path: Path) -> None:
    with (
        tmpfs(tmp_path, "size=8m,nr_inodes=20") as small,
        pytest.raises(RefusedError, match=r"no space left on device \(\d+ inodes are free, 64 are needed\); "),
        refused_where_not_written(small),
    ):
        start_record("r1", quick_plan(), small)


def test_a_full_disk_leaves_a_run_that_says_so_and_a_report_of_its_first_screen(small: Path) -> None:
    def on_write(event: object, moment: str) -> None:
        if isinstance(event, StepStarted) and (event.step, moment) == (Step.AWAIT_ALERT, "after"):
            fill(small)

    played = play(loaded(QUICK), reports=small, on_write=on_write)
    assert (played.outcome, played.cluster.left()) == (RunOutcome.ABORTED, [])
    assert "no space left on device" in played.result.why
    assert read_history(played.folder / HISTORY_FILE).records == played.history.records
    fill(small, leave_bytes=90_000)
    with pytest.raises(OSError, match="No space left on device") as raised:
        render(played.folder, AT)
    assert raised.value.filename == str(played.folder / "report.html")
    page = (played.folder / "report.html").read_text("utf-8")
    assert "report.html: no space left on device; make room there" in page
    assert "Aborted by guard" in page
    (small / "filler").unlink()
    assert gameday(["report", str(played.folder)]) == 3
    assert "no room for the rest" not in (played.folder / "report.html").read_text("utf-8")


PROFILE = """\
kubeconfig: /nowhere
prometheus: {url: "http://127.0.0.1:9"}
alertmanager: {url: "http://127.0.0.1:9"}
loki: {url: "http://127.0.0.1:9"}
"""


def test_a_game_day_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "profile.yaml").write_text(PROFILE)
    (tmp_path / "reports").mkdir()
    with tmpfs(tmp_path / "reports", "size=80k") as reports, temporary_settings({PREFECT_API_URL: None}):
        state = game_day.fn(plan="nothing-happens", profile=str(tmp_path / "profile.yaml"), reports=str(reports))
        assert list(reports.iterdir()) == []
    assert state.data.exit_code == 5
    said = f"{reports}: no space left on device (0.1 MiB are free, 4 are needed); make room there"
    assert f"the folder of reports cannot be written: {said}" in str(state.message)


def test_the_commands_ask_for_room_before_they_start_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with tmpfs(tmp_path, "size=80k") as small:
        assert gameday(["rehearse", "nothing-happens", "--reports", str(small / "reports")]) == 5
        monkeypatch.setattr(tempfile, "tempdir", str(small))
        with pytest.raises(CommandError, match=r"64 are needed.*make room there.*TMPDIR names another place"):
            temporary_folder("gameday-")
    assert "(0.1 MiB are free, 4 are needed)" in capsys.readouterr().err


def test_a_run_whose_history_is_cut_off_by_its_disk_has_its_result_and_no_report(small: Path) -> None:
    record = start_record("r1", quick_plan(), small)
    record.note(RunEnded(cleanliness=Cleanliness.CLEAN))
    shutil.rmtree(record.folder)
    with pytest.raises(AbortedError, match="no such file or directory"):
        record.wait("anything", timedelta(seconds=1), lambda: True)
    record.note(Aborted(by="guard", why=record.why_unwritten))
    result = report.fn(record)
    assert (result.outcome, result.exit_code, result.has_report) == (RunOutcome.ABORTED, 3, False)
    assert result.why.endswith("There is no report: the history on the disk stops before its end.")
