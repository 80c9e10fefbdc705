"""The report's task: a folder that takes nothing, or a bug of ours, leaves the result; verdicts are judged again."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Never

import pytest
from rich.console import Console

import gameday.tasks.report
from gameday.checks.outcome import RunOutcome
from gameday.cli.verdicts import print_result
from gameday.history.events import RunEnded
from gameday.run.record import start_record
from gameday.runs.run_row import render_run
from gameday.tasks.report import report
from gameday.values.results import Cleanliness
from tests.report.run_builder import passing, write
from tests.support.runs import quick_plan


def bug(*_: object) -> Never:
    raise KeyError("a bug of ours")


@pytest.mark.parametrize(("breaks", "why"), [("a folder", "is a directory"), ("a bug", "KeyError: 'a bug of ours'")])
def test_a_report_that_cannot_be_drawn_does_not_hide_a_dirty_cluster(
    breaks: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = start_record("r1", quick_plan(), tmp_path)
    record.note(RunEnded(cleanliness=Cleanliness.DIRTY))
    if breaks == "a bug":
        monkeypatch.setattr(gameday.tasks.report, "render_run", bug)
    else:
        (record.folder / "report.html").mkdir()
    result = report.fn(record)
    assert (result.outcome, result.exit_code) == (RunOutcome.FAILED, 4)
    assert why in result.why
    assert f"`gameday report {record.folder}` draws it" in result.why


def test_a_run_whose_verdicts_were_not_written_is_judged_again(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", passing())
    rendered = render_run(folder, datetime.now(UTC))
    rendered.verdicts.write_text("[{")
    out = Console(file=StringIO(), width=120)
    assert print_result(out, folder) == rendered.result.exit_code
    assert "alert" in out.file.getvalue().lower()
