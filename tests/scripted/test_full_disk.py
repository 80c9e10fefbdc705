"""Game-days on a disk that takes no more, from each of their writes on: undone at once, and said in words."""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gameday.checks.outcome import RunOutcome, fold_outcome
from gameday.guard.guardrails import disk as disk_guardrail
from gameday.history import durable
from gameday.history.events import Event, FaultInjected, FaultUndone, StepStarted
from gameday.history.journal import read_history
from gameday.history.room import Room
from gameday.report.run_folder import load_run_folder
from gameday.run import record
from gameday.run.record import HISTORY_FILE
from gameday.run.run import Run
from gameday.values.results import Cleanliness, Step
from tests.support.scripted import game_day
from tests.support.scripted.game_day import Played, play
from tests.support.scripted.plans import QUICK, loaded
from tests.support.scripted.wire import Moment


@dataclass
class Disk:
    """The system calls of the history's writer, of which the writes from `first` to `last` fail."""

    first: int
    last: int = 10**6
    number: int = errno.ENOSPC
    takes_half: bool = False
    writes: int = 0

    def write(self, file: int, content: Any) -> int:
        self.writes += 1
        if self.first <= self.writes <= self.last:
            if self.takes_half and self.writes == self.first:
                return os.write(file, content[: len(content) // 2])
            raise OSError(self.number, os.strerror(self.number))
        return os.write(file, content)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def played_on(disk: Any, reports: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setattr(durable, "os", disk)
    return play(loaded(QUICK), reports=reports)


@pytest.mark.parametrize("beginning", range(4))
def test_it_is_undone_and_aborted_whichever_write_is_the_first_to_fail(
    beginning: int, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = played_on(Disk(first=10**6), reports, monkeypatch)
    assert whole.outcome is RunOutcome.PASSED
    for first in range(1 + beginning, 1 + len(whole.history.records), 4):
        played = played_on(Disk(first), reports, monkeypatch)
        said = played.result.why
        assert (played.outcome, played.result.exit_code, played.cluster.left()) == (RunOutcome.ABORTED, 3, []), first
        assert f"{played.folder / HISTORY_FILE}: no space left on device; make room there" in said, first
        assert {one.cleanliness for one in played.history.of(FaultUndone)} <= {Cleanliness.CLEAN}, first
        kept = read_history(played.folder / HISTORY_FILE)
        assert (kept.records, kept.damaged) == (played.history.records[: first - 1], 0), first


def at_step(step: Step, strike: Callable[[Path], object], reports: Path) -> Played:
    """Play a game-day that something befalls as one of its steps begins; `strike` gets the run's folder."""
    folders: list[Path] = []

    def act(run: Run) -> None:
        folders.append(run.record.folder)
        game_day.steps(run)

    def on_write(event: Event, moment: Moment) -> None:
        if isinstance(event, StepStarted) and (event.step, moment) == (step, "after"):
            strike(folders[0])

    return play(loaded(QUICK), reports=reports, act=act, on_write=on_write)


def assert_undone(played: Played, said: str) -> None:
    assert played.history.of(FaultInjected)
    assert {one.cleanliness for one in played.history.of(FaultUndone)} == {Cleanliness.CLEAN}
    assert (played.outcome, played.result.exit_code, played.cluster.left()) == (RunOutcome.ABORTED, 3, [])
    assert said in played.result.why


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.ESTALE])
def test_it_is_said_what_the_system_says(number: int, reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(first=10**6, number=number)
    monkeypatch.setattr(durable, "os", disk)
    played = at_step(Step.AWAIT_ALERT, lambda folder: setattr(disk, "first", 0), reports)
    said = os.strerror(number)
    assert_undone(played, f"cannot be written: {played.folder / HISTORY_FILE}: {said[0].lower()}{said[1:]}; ")


def test_a_folder_that_is_gone_ends_the_run(reports: Path) -> None:
    played = at_step(Step.AWAIT_ALERT, shutil.rmtree, reports)
    assert_undone(played, "no such file or directory")
    assert not played.folder.exists()


def test_a_file_that_another_covers_ends_the_run(reports: Path) -> None:
    def cover(folder: Path) -> None:
        folder.rename(folder.with_name("moved"))
        folder.mkdir()
        (folder / HISTORY_FILE).touch()

    played = at_step(Step.AWAIT_ALERT, cover, reports)
    assert_undone(played, "it is no longer the file that was opened")
    assert (played.folder / HISTORY_FILE).read_bytes() == b""


def test_the_undo_does_not_wait_for_a_file_system_that_hangs(reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    disk = Disk(first=10**6)
    monkeypatch.setattr(durable, "os", disk)
    monkeypatch.setattr(durable, "_HANGS_AFTER_S", 0.05)
    try:
        # Only the thread of the writer waits, at the place where the system would keep it.
        played = at_step(Step.AWAIT_ALERT, lambda folder: setattr(disk, "fsync", lambda file: goes_on.wait()), reports)
    finally:
        goes_on.set()
    assert_undone(played, "no answer for 0.05 s: its file system hangs")


@pytest.mark.parametrize("takes_half", [False, True])
def test_the_reserve_takes_the_end_of_the_history(
    takes_half: bool, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(first=60, last=61 if takes_half else 60, takes_half=takes_half)
    played = played_on(disk, reports, monkeypatch)
    assert_undone(played, "no space left on device")
    kept = read_history(played.folder / HISTORY_FILE)
    assert (kept.records, kept.damaged) == (played.history.records, 0)
    assert fold_outcome(kept, played.verdicts) == played.result


def test_a_history_that_ends_in_the_midst_of_a_line_is_read_up_to_there(
    reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(first=60, takes_half=True)
    monkeypatch.setattr(disk, "ftruncate", disk.write, raising=False)  # not even that is done
    played = played_on(disk, reports, monkeypatch)
    run = load_run_folder(played.folder)
    assert (run.history.records, run.history.damaged) == (played.history.records[:59], 1)
    assert "its disk took no more" in run.result.why


def test_little_room_ends_the_run_while_all_of_it_can_be_written(
    reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = Room(reports, free_bytes=2**20, free_files=None, is_read_only=False)

    def shrink(folder: Path) -> None:
        monkeypatch.setattr(disk_guardrail, "room_in", lambda folder: little)

    played = at_step(Step.AWAIT_ALERT, shrink, reports)
    assert_undone(played, ": no space left on device (1.0 MiB are free, 4 are needed); make room there")
    assert read_history(played.folder / HISTORY_FILE).records == played.history.records


@pytest.mark.parametrize(
    ("free_bytes", "free_files", "is_read_only", "said"),
    [
        (80 * 1024, None, False, "No space left on device (0.1 MiB are free, 4 are needed)"),
        (2**30, 3, False, "No space left on device (3 inodes are free, 64 are needed)"),
        (2**30, 1000, True, "Read-only file system"),
    ],
)
def test_a_run_does_not_begin_where_it_does_not_fit(
    free_bytes: int,
    free_files: int | None,
    is_read_only: bool,
    said: str,
    reports: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "room_in", lambda folder: Room(folder, free_bytes, free_files, is_read_only))
    with pytest.raises(OSError, match=re.escape(said)):
        record.start_record("r1", loaded(QUICK), reports)
    assert list(reports.iterdir()) == []
