"""Everything that lies in a reports folder: runs by their summaries, incidents with people's notes.

A run whose report was never rendered (it was killed) is judged here from its
history, so that the worst runs are not the missing ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gameday.coverage.run_row import judged
from gameday.errors import NotesError
from gameday.post_mortem.incident import INCIDENT_FILE, Incident, read_incident
from gameday.report.notes import Action, Notes, read_notes
from gameday.report.numbers import summarise
from gameday.report.run_folder import load_run
from gameday.report.summary import Summary, read_summary


@dataclass(frozen=True)
class ShelvedRun:
    folder: Path
    summary: Summary


@dataclass(frozen=True)
class ShelvedIncident:
    """`problem` says why the notes could not be read; empty where they could."""

    folder: Path
    incident: Incident
    notes: Notes
    problem: str = ""


@dataclass(frozen=True)
class Shelf:
    """Runs and incidents, newest first; `unreadable` names folders of which nothing can be told, and why."""

    runs: tuple[ShelvedRun, ...]
    incidents: tuple[ShelvedIncident, ...]
    unreadable: tuple[str, ...]

    @cached_property
    def _ids_of_name(self) -> dict[str, set[str]]:
        ids: dict[str, set[str]] = {}
        for run in self.runs:
            ids.setdefault(run.summary.cluster, set()).add(run.summary.cluster_id)
        return ids

    def cluster_of(self, run: ShelvedRun) -> str:
        """What people call the run's cluster; with the beginning of its identity where another is called the same."""
        name, id = run.summary.cluster, run.summary.cluster_id
        return name if len(self._ids_of_name[name]) == 1 else f"{name} ({id[:8]})"

    @property
    def open_actions(self) -> tuple[tuple[ShelvedIncident, Action], ...]:
        return tuple((one, action) for one in self.incidents for action in one.notes.open_actions)


def read_shelf(reports: Path) -> Shelf:
    """Raises OSError for a folder that cannot be listed; whatever stands in its folders is told, never raised."""
    runs: list[ShelvedRun] = []
    incidents: list[ShelvedIncident] = []
    unreadable: list[str] = []
    for folder in sorted(path for path in reports.iterdir() if path.is_dir()):
        if (folder / INCIDENT_FILE).is_file():
            _shelve_incident(folder, incidents, unreadable)
        elif (folder / "history.jsonl").is_file() or (folder / "report.json").is_file():
            summary = read_summary(folder) or _judge(folder)
            if summary:
                runs.append(ShelvedRun(folder, summary))
            else:
                unreadable.append(f"{folder.name}: its history does not say which run it is")
    runs.sort(key=lambda run: run.summary.started, reverse=True)
    incidents.sort(key=lambda one: one.incident.start, reverse=True)
    return Shelf(tuple(runs), tuple(incidents), tuple(unreadable))


def _judge(folder: Path) -> Summary | None:
    try:
        found = judged(folder)
        return found.summary if found else None
    except Exception:  # its row cannot be judged, which the digest tells; it has its verdicts nevertheless
        return summarise(load_run(folder))


def _shelve_incident(folder: Path, incidents: list[ShelvedIncident], unreadable: list[str]) -> None:
    try:
        incident = read_incident(folder)
    except (OSError, ValueError) as error:
        unreadable.append(f"{folder.name}: {INCIDENT_FILE} cannot be read ({type(error).__name__})")
        return
    try:
        incidents.append(ShelvedIncident(folder, incident, read_notes(folder)))
    except NotesError as error:
        incidents.append(ShelvedIncident(folder, incident, Notes(), str(error)))
