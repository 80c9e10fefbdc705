"""A comparison's page, comparison.html, and the same as comparison.json, from its game-days' folders."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from gameday.checks.outcome import RunResult
from gameday.report.durations import durations
from gameday.report.figure import Figure, figures_of
from gameday.report.redact import Clean, cleaned, cleaner, words_of_command
from gameday.report.render import load_with_its_past, render
from gameday.report.run_folder import RunFolder, garbage_collection_paused, load_run_folder
from gameday.runs.arm_result import arm_result
from gameday.runs.comparison import Comparison, PlayedRun, compare
from gameday.runs.comparison_record import ArmRecord, ComparisonRecord
from gameday.runs.pages import RenderedPage, write_page
from gameday.runs.run_list import ARMS_FILE
from gameday.runs.season_record import Assignment


def render_comparison(folder: Path, rendered_at: datetime, *, redact: bool = False) -> RenderedPage[Comparison]:
    """Write comparison.html and comparison.json into the comparison's folder, from arms.json and the folders in it.

    `redact`: write comparison-redacted.html and .json, without the site's names, and the report-redacted.html that it
    links of each game-day.
    Raises OSError if it cannot be read or written, ValueError if arms.json holds something else.
    """
    record = ComparisonRecord.load(folder)
    compared = compare(record, *_played(folder, record))
    if redact:
        compared = _redacted(compared, folder, rendered_at)
    suffix = "-redacted" if redact else ""
    stem = folder / f"comparison{suffix}"
    return write_page(stem, "comparison.html", compared, rendered_at, report=f"report{suffix}.html")


def _redacted(compared: Comparison, folder: Path, rendered_at: datetime) -> Comparison:
    """Return the comparison without the site's names, and write its game-days' reports without them."""
    clean = cleaner_of(folder)
    for run in (run for column in compared.arms for run in column.runs if run.outcome):
        render(folder / run.run_id, rendered_at, redact=True, clean=clean)
    shown: Comparison = cleaned(compared, clean)
    return shown


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


def cleaner_of(folder: Path) -> Clean:
    """Return the function that takes the site's names out of a text, for all that is in a comparison's folder.

    A node has the same number on the page and in each report, also if they name other nodes.
    Raises OSError, and ValueError, as `ComparisonRecord.load` does.
    """
    record = ComparisonRecord.load(folder)
    folders = (folder / place.run_id for place in record.runs)
    runs = [load_with_its_past(run) for run in folders if (run / "history.jsonl").is_file()]
    words = list(words_of_command(record.command))
    if not any(run.started and run.started.trigger == "rehearsal" for run in runs):
        words.append((record.cluster, "the cluster"))
    return cleaner(runs, (node for place in record.runs for node in place.targets), words)


def cleaner_of_member(run_folder: Path) -> Clean | None:
    """Return `cleaner_of` the comparison that a game-day's folder is in; None if it is in none."""
    around = run_folder.resolve().parent
    return cleaner_of(around) if (around / ARMS_FILE).is_file() else None
