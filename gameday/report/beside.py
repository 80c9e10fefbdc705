"""What a report takes from beside the run: its people's notes, and what earlier runs of its plan left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gameday.documents.source import MAX_BYTES
from gameday.errors import NotesError
from gameday.report.earlier import MOST_RUNS, earlier_folders
from gameday.report.notes import Carried, Notes, read_notes
from gameday.report.numbers import summarise
from gameday.report.run_folder import Run
from gameday.report.summary import Summary


def with_notes(folder: Path, run: Run) -> Run:
    """The run with its people's notes; a file that cannot be used is a problem of the run's files."""
    try:
        return replace(run, notes=read_notes(folder))
    except NotesError as error:
        said = f"What people wrote is not shown: {error}"
        return replace(run, notes_problem=str(error), problems=(*run.problems, said))


def with_earlier(folder: Path, run: Run) -> Run:
    """The run with the earlier ones of its plan, the actions they left open, and the plan as it was before."""
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


def carried_actions(past: Iterable[tuple[Path, Summary]], notes: Notes) -> tuple[tuple[Carried, ...], tuple[str, ...]]:
    """Open actions of earlier runs, oldest first, and why some could not be read.

    A later run's notes that speak of an action, by its id or else its text, have the last word on it.
    """
    newest: dict[str, Carried] = {}
    problems = []
    for folder, summary in past:
        try:
            for action in read_notes(folder).actions:
                newest[action.key] = Carried(run_id=summary.run_id, action=action)
        except NotesError as error:
            problems.append(f"Open actions of run {summary.run_id} are not known: {error}")
    spoken_of = {action.key for action in notes.actions}
    still_open = [one for key, one in newest.items() if one.action.is_open and key not in spoken_of]
    return tuple(still_open), tuple(problems)


def _plan_text(folder: Path) -> str:
    try:
        with (folder / "plan.yaml").open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
