"""The row of the coverage matrix that a run leaves beside its history when it ends.

A row is judged out of the whole history, which for 500 nodes takes seconds and
a hundred megabytes; a page over a season's fifty runs reads fifty small files.
A run that was killed left none: the first page that meets it leaves what it judged.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ValidationError

from gameday.checks.outcome import RunResult
from gameday.plain_file import read_plain, write_whole
from gameday.report.render import Rendered, render
from gameday.report.run_folder import garbage_collection_paused, judge_run_folder
from gameday.report.summarise import summarise
from gameday.report.summary import Summary, read_summary
from gameday.runs.matrix import CoverageMatrix, matrix_of

ROW_FILE = "coverage-row.json"
KEPT_FILE = "judged.json"


@dataclass(frozen=True)
class JudgedRun:
    """A run's result and its row of the matrix.

    `row` is a matrix of one; of none where the run's plan cannot be read. `summary` is None for a history that does
    not say which run it is.
    """

    summary: Summary | None
    result: RunResult
    row: CoverageMatrix


class _Kept(BaseModel):
    """The judgement of a run that had left none, kept by a page for the pages after it.

    `of` is what it was judged from, `by` the code that did it.
    """

    of: tuple[tuple[str, int, int], ...]
    by: str
    summary: Summary
    row: CoverageMatrix


def render_run(folder: Path, rendered_at: datetime) -> Rendered:
    """Render a run's report and leave its row, with its gaps, as a matrix of one; raises what `render` does.

    A row that cannot be judged is left out: the report is written by then, and a
    reader of the row judges it again and gets the error.
    """
    rendered, path = render(folder, rendered_at), folder / ROW_FILE
    (folder / KEPT_FILE).unlink(missing_ok=True)
    try:
        row = matrix_of([rendered.run])
    except Exception:
        path.unlink(missing_ok=True)
    else:
        write_whole(path, row.model_dump_json(indent=1) + "\n")
    return rendered


def judged_run(folder: Path) -> JudgedRun | None:
    """Return the run's own judgement, or judge its history; None without one."""
    summary, row = read_summary(folder), _read_row(folder)
    if not (summary and row) and (kept := _read_kept(folder)):
        summary, row = kept.summary, kept.row
    if summary and row:
        result = RunResult(
            outcome=summary.outcome, cleanliness=summary.cleanliness, exit_code=summary.exit_code, why=summary.why
        )
        return JudgedRun(summary, result, row)
    return _judge(folder) if (folder / "history.jsonl").is_file() else None


def is_judged(folder: Path) -> bool:
    """Return True where a page has judged the run and kept the result, and nothing has changed since."""
    return _read_kept(folder) is not None


@garbage_collection_paused()
def _judge(folder: Path) -> JudgedRun:
    """Judge the run, and keep the result for the next page: with 500 nodes it takes most of a second."""
    of = _state(folder)  # taken before the folder is read: additions of a living run are then judged by the next page
    run = judge_run_folder(folder)
    made = JudgedRun(summarise(run), run.result, matrix_of([run]))
    if made.summary and not made.result.running:  # what is said of it now is not true for long
        with suppress(OSError):
            kept = _Kept(of=of, by=_code(), summary=made.summary, row=made.row)
            write_whole(folder / KEPT_FILE, kept.model_dump_json(indent=1) + "\n")
    return made


def _read_kept(folder: Path) -> _Kept | None:
    """Return the kept judgement; None where the run's files or our code have changed since."""
    try:
        kept = _Kept.model_validate_json(read_plain(folder / KEPT_FILE))
        return kept if (kept.of, kept.by) == (_state(folder), _code()) else None
    except (OSError, ValidationError):
        return None


def _state(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of change (ns) of the files a run is judged by."""
    paths = [folder / "plan.json", folder / "history.jsonl", *sorted((folder / "frames").glob("*.parquet"))]
    found = [(path.name, path.stat()) for path in paths if path.is_file()]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)


@cache
def _code() -> str:
    """SHA-256 of this package's sources: a check that was changed judges anew, also between two releases."""
    package = Path(__file__).parents[1]
    found = sha256()
    for source in sorted(package.rglob("*.py")):
        found.update(str(source.relative_to(package)).encode() + source.read_bytes())
    return found.hexdigest()


def _read_row(folder: Path) -> CoverageMatrix | None:
    try:
        return CoverageMatrix.model_validate_json(read_plain(folder / ROW_FILE))
    except (OSError, ValidationError):
        return None
