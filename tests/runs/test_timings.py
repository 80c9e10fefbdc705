"""The file of all runs' timings is read from the reports and written by one process at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from gameday.runs import timings
from gameday.runs.run_list import RunList, list_runs
from tests.report.run_builder import passing, write


def test_no_other_writer_gets_between_the_reading_and_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "reports" / "r1", passing())

    def reading(reports: Path) -> RunList:
        other = os.open(tmp_path, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(other)
        return list_runs(reports)

    monkeypatch.setattr(timings, "list_runs", reading)
    timings.write_timings(tmp_path / "reports", tmp_path / "game-days.prom")
    assert b"gameday_run_outcome" in (tmp_path / "game-days.prom").read_bytes()
    again = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)
