"""A comparison's page, comparison.html, and the same as comparison.json, from its game-days' folders."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gameday.checks.outcome import RunResult
from gameday.plain_file import read_plain, write_each
from gameday.report.durations import durations
from gameday.report.figure import Figure, figures_of
from gameday.report.page import environment
from gameday.report.redact import cleaned
from gameday.report.render import render
from gameday.report.run_folder import RunFolder, garbage_collection_paused, load_run_folder
from gameday.runs.arm_result import arm_result
from gameday.runs.comparison import Comparison, PlayedRun, compare
from gameday.runs.comparison_record import ArmRecord, ComparisonRecord
from gameday.runs.comparison_redact import cleaner_of
from gameday.runs.season_record import Assignment, SeasonResult

_ACCENTS = {0: "passed", 1: "failed", 3: "aborted", 4: "failed", 5: "refused"}


@dataclass(frozen=True)
class RenderedComparison:
    html: Path
    json: Path
    comparison: Comparison
    unwritten: str
    """The reason why page or JSON is not as it should be; empty where both are written."""

    @property
    def result(self) -> SeasonResult:
        """The comparison's exit code, and its outcome in a sentence."""
        return self.comparison.result


def render_comparison(folder: Path, rendered_at: datetime, *, redact: bool = False) -> RenderedComparison:
    """Write comparison.html and comparison.json into the comparison's folder, from arms.json and the folders in it.

    `redact`: write comparison-redacted.html and .json, without the site's names, and the report-redacted.html that it
    links of each game-day.
    Raises OSError where it cannot be read or written, ValueError where arms.json holds something else.
    """
    record = ComparisonRecord.load(folder)
    compared = compare(record, *_played(folder, record))
    if redact:
        compared = _redacted(compared, folder, rendered_at)
    suffix = "-redacted" if redact else ""
    html, json = folder / f"comparison{suffix}.html", folder / f"comparison{suffix}.json"
    page = environment("runs").get_template("comparison.html")
    accent = _ACCENTS.get(compared.result.exit_code, "unknown")
    content = page.render(c=compared, accent=accent, report=f"report{suffix}.html", rendered_at=rendered_at)
    unwritten = write_each({html: content, json: compared.model_dump_json(indent=1) + "\n"})
    return RenderedComparison(html, json, compared, unwritten)


def _redacted(compared: Comparison, folder: Path, rendered_at: datetime) -> Comparison:
    """Return the comparison without the site's names, and write its game-days' reports without them."""
    clean = cleaner_of(folder)
    for run in (run for column in compared.arms for run in column.runs if run.outcome):
        render(folder / run.run_id, rendered_at, redact=True, clean=clean)
    shown: Comparison = cleaned(compared, clean)
    return shown


def read_comparison(folder: Path) -> Comparison:
    """Read what comparison.json holds; raises OSError, and ValueError for a file that holds something else."""
    return Comparison.model_validate_json(read_plain(folder / "comparison.json"))


def result_of_member(folder: Path, run_id: str) -> RunResult:
    """Return the result of one game-day as that of its arm.

    Args:
        folder: The comparison's folder.
        run_id: The game-day, which has a folder in it.

    Raises OSError, and ValueError, as `ComparisonRecord.load` does.
    """
    record, run = ComparisonRecord.load(folder), load_run_folder(folder / run_id)
    place = next(place for place in record.runs if place.run_id == run_id)
    return arm_result(_arm_of(record, place), run.history, run.verdicts)


@garbage_collection_paused()
def _played(folder: Path, record: ComparisonRecord) -> tuple[list[PlayedRun], list[str]]:
    """Return the game-days that were played, and sentences about figures that could not be read."""
    played: list[PlayedRun] = []
    problems: list[str] = []
    for place in record.runs:
        if (folder / place.run_id / "history.jsonl").is_file():
            run, said = _read(record, place, load_run_folder(folder / place.run_id))
            played.append(run)
            problems += said
    return played, list(dict.fromkeys(problems))


def _read(record: ComparisonRecord, place: Assignment, run: RunFolder) -> tuple[PlayedRun, tuple[str, ...]]:
    took = [
        Figure(name=str(one.measure), unit="s", value=one.seconds) for one in durations(run) if one.seconds is not None
    ]
    measured = figures_of(run.plan, run.history, run.frames) if run.plan else None
    return (
        PlayedRun(
            place=place,
            result=arm_result(_arm_of(record, place), run.history, run.verdicts),
            own=run.result,
            virtual=run.is_virtual,
            verdicts=run.verdicts,
            # A duration that a plan judges is a figure of every plan too.
            figures=tuple({one.name: one for one in (*took, *(measured.figures if measured else ()))}.values()),
        ),
        measured.problems if measured else (),
    )


def _arm_of(record: ComparisonRecord, place: Assignment) -> ArmRecord:
    return next(arm for arm in record.arms if place.arm and arm.name == place.arm.arm)
