"""The row of the coverage matrix that a run leaves beside its history when it ends.

A row is judged from the whole history, which for 500 nodes takes seconds and a hundred megabytes; a page over a
season's fifty runs then reads fifty small files. A run that was killed left no row, so until the reaper or
`gameday report` renders it, each page judges its history.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from gameday.checks.outcome import RunResult
from gameday.plain_file import read_plain, write_whole
from gameday.report.render import Rendered, render
from gameday.report.run_folder import garbage_collection_paused, judge_run_folder
from gameday.report.summarise import summarise
from gameday.report.summary import Summary, read_summary
from gameday.runs.matrix import CoverageMatrix, matrix_of

ROW_FILE = "coverage-row.json"


@dataclass(frozen=True)
class JudgedRun:
    """A run's result and its row of the matrix.

    `row` is a matrix with that row, or an empty one if the run's plan cannot be read. `summary` is None for a history
    that does not say which run it is.
    """

    summary: Summary | None
    result: RunResult
    row: CoverageMatrix


def render_run(folder: Path, rendered_at: datetime) -> Rendered:
    """Render a run's report and leave its row, with its gaps, as a matrix of one; raises what `render` does.

    A row that cannot be judged is left out: the report is written by then, and a reader of the row judges it again and
    gets the error.
    """
    rendered, path = render(folder, rendered_at), folder / ROW_FILE
    try:
        row = matrix_of(rendered.run)
    except Exception:
        path.unlink(missing_ok=True)
    else:
        write_whole(path, row.model_dump_json(indent=1) + "\n")
    return rendered


@garbage_collection_paused()
def judged_run(folder: Path) -> JudgedRun | None:
    """Return the run's own judgement, or judge its history; None without one."""
    summary, row = read_summary(folder), _read_row(folder)
    if summary and row:
        result = RunResult(
            outcome=summary.outcome, cleanliness=summary.cleanliness, exit_code=summary.exit_code, why=summary.why
        )
        return JudgedRun(summary, result, row)
    if not (folder / "history.jsonl").is_file():
        return None
    run = judge_run_folder(folder)
    return JudgedRun(summarise(run), run.result, matrix_of(run))


def _read_row(folder: Path) -> CoverageMatrix | None:
    try:
        return CoverageMatrix.model_validate_json(read_plain(folder / ROW_FILE))
    except (OSError, ValidationError):
        return None
