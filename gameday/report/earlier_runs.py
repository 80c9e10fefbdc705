"""The earlier runs of a run's plan, found beside its folder, and the action items they left open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gameday.documents.source import MAX_BYTES
from gameday.errors import NotesError
from gameday.plain_file import open_plain
from gameday.report.notes import CarriedAction, Notes, read_notes
from gameday.report.run_folder import RunFolder
from gameday.report.summarise import summarise
from gameday.report.summary import Summary, read_summary

MOST_RUNS = 10
"""Runs to compare with: about a quarter of weekly runs, and few enough for one small chart."""
MOST_FOLDERS = 400
"""Folders to read, newest name first (a run id starts with its date), so that years of runs cost no more."""

SAMPLE_FOLDER = "sample"
"""Folder of the repository's sample run in `reports/`; it is nobody's earlier run."""


def earlier_runs(folder: Path, now: Summary) -> tuple[Summary, ...]:
    """Return the newest runs of the same plan on the same cluster that began before this one.

    They are read from the `summary` in the report.json of each folder beside this one. A folder without a readable
    summary is skipped.

    Args:
        folder: The run's own folder.
        now: The run's own summary.

    Returns:
        At most MOST_RUNS summaries, oldest first.
    """
    return tuple(summary for _, summary in earlier_folders(folder, now))[-MOST_RUNS:]


def earlier_folders(folder: Path, now: Summary) -> list[tuple[Path, Summary]]:
    """Return every run that `earlier_runs` chooses from, with its folder, oldest first."""
    beside = ((other, read_summary(other)) for other in _folders_beside(folder)[:MOST_FOLDERS])
    of_plan = [(at, one) for at, one in beside if one and one.series == now.series]
    found = [(at, one) for at, one in of_plan if one.started < now.started and one.run_id != now.run_id]
    return sorted(found, key=lambda pair: pair[1].started)


def with_earlier_runs(folder: Path, run: RunFolder) -> RunFolder:
    """Return the run with the earlier ones of its plan, their open actions, and the plan of the newest."""
    now = summarise(run)
    past = earlier_folders(folder, now) if now else []
    carried, problems = carried_actions(past, run.notes)
    return replace(
        run,
        earlier=tuple(summary for _, summary in past[-MOST_RUNS:]),
        carried=carried,
        previous_plan_text=_plan_text(past[-1][0]) if past else "",
        problems=(*run.problems, *problems),
    )


def carried_actions(
    past: Iterable[tuple[Path, Summary]], notes: Notes
) -> tuple[tuple[CarriedAction, ...], tuple[str, ...]]:
    """Return the action items that earlier runs left open.

    The newest notes that mention an action decide its state. They mention it by its id, or else by its text.

    Args:
        past: Folders and summaries of the earlier runs, oldest first.
        notes: The notes of the run itself; an action that they mention is not carried over.

    Returns:
        The open actions, oldest first, and a sentence for each earlier run with unreadable notes.
    """
    newest: dict[str, CarriedAction] = {}
    problems = []
    for folder, summary in past:
        try:
            for action in read_notes(folder).actions:
                newest[action.key] = CarriedAction(run_id=summary.run_id, action=action)
        except NotesError as error:
            problems.append(f"The open actions of run {summary.run_id} cannot be read: {error}")
    mentioned = {action.key for action in notes.actions}
    still_open = [one for key, one in newest.items() if one.action.is_open and key not in mentioned]
    return tuple(still_open), tuple(problems)


def _folders_beside(folder: Path) -> list[Path]:
    """Return the other folders beside this one, newest name first; none if they cannot be listed."""
    try:
        others = [
            path
            for path in folder.resolve().parent.iterdir()
            if path.name not in (folder.resolve().name, SAMPLE_FOLDER)
        ]
    except OSError:
        return []
    return sorted(others, key=lambda path: path.name, reverse=True)


def _plan_text(folder: Path) -> str:
    try:
        with open_plain(folder / "plan.yaml") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
