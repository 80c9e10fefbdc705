"""The row of the coverage matrix that a run leaves beside its history when it ends.

A row is judged out of the whole history, which for 500 nodes takes seconds and
a hundred megabytes; a page over a season's fifty runs reads fifty small files.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from gameday.checks.outcome import RunResult
from gameday.coverage.matrix import Matrix, matrix_of
from gameday.report.render import Rendered, render
from gameday.report.run import load_run
from gameday.report.summary import read_summary

ROW_FILE = "coverage-row.json"


@dataclass(frozen=True)
class Judged:
    """`row` is a matrix of one; of none where the run's plan cannot be read."""

    result: RunResult
    row: Matrix


def render_run(folder: Path, rendered_at: datetime) -> Rendered:
    """Render a run's report and leave its row, with its gaps, as a matrix of one; raises what `render` does.

    A row that cannot be judged is left out: the report is written by then, and
    whoever wants the row judges it then and hears of the trouble.
    """
    rendered, path = render(folder, rendered_at), folder / ROW_FILE
    try:
        row = matrix_of([rendered.run])
    except Exception:
        path.unlink(missing_ok=True)
    else:
        path.write_text(row.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return rendered


def judged(folder: Path) -> Judged | None:
    """What a run left of itself; judged from its history where it left nothing that can be read. None without one."""
    summary, row = read_summary(folder), _read_row(folder)
    if summary and row:
        result = RunResult(
            outcome=summary.outcome, cleanliness=summary.cleanliness, exit_code=summary.exit_code, why=summary.why
        )
        return Judged(result, row)
    if not (folder / "history.jsonl").is_file():
        return None
    run = load_run(folder)
    return Judged(run.result, matrix_of([run]))


def _read_row(folder: Path) -> Matrix | None:
    try:
        return Matrix.model_validate_json((folder / ROW_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
