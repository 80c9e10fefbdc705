"""The catalog of a reports folder: runs with their summaries, incidents with people's notes.

A run that was killed before its report was rendered is judged from its history, so that the worst runs are listed
as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gameday.arms.compare import Comparison
from gameday.arms.page import read_comparison
from gameday.arms.record import ARMS_FILE
from gameday.coverage.run_row import judged_run
from gameday.errors import NotesError
from gameday.exit_codes import ExitCode
from gameday.post_mortem.incident import INCIDENT_FILE, Incident, read_incident
from gameday.report.notes import ActionItem, Notes, read_notes
from gameday.report.run_folder import load_run_folder
from gameday.report.summarise import summarise
from gameday.report.summary import Summary, read_summary


@dataclass(frozen=True)
class CatalogRun:
    """A run's folder and its summary."""

    folder: Path
    summary: Summary


@dataclass(frozen=True)
class CatalogIncident:
    """An incident's folder, its record, and what people wrote about it."""

    folder: Path
    incident: Incident
    notes: Notes
    problem: str = ""
    """The reason why the notes cannot be read; empty if they can."""


@dataclass(frozen=True)
class CatalogComparison:
    """A comparison's folder, and what its page says. Its game-days are in its folder, and no runs of the catalog."""

    folder: Path
    comparison: Comparison

    @property
    def doubt(self) -> str:
        """The comparison's result in a sentence where it leaves the cluster not provably clean; else empty."""
        result = self.comparison.result
        return result.why if result.exit_code in (ExitCode.DIRTY, ExitCode.UNKNOWN) else ""


@dataclass(frozen=True)
class RunCatalog:
    """The runs, incidents and comparisons of a reports folder, newest first."""

    runs: tuple[CatalogRun, ...]
    incidents: tuple[CatalogIncident, ...]
    comparisons: tuple[CatalogComparison, ...]
    unreadable: tuple[str, ...]
    """A sentence for each folder that cannot be listed."""

    @cached_property
    def _ids_of_name(self) -> dict[str, set[str]]:
        ids: dict[str, set[str]] = {}
        for run in self.runs:
            ids.setdefault(run.summary.cluster, set()).add(run.summary.cluster_id)
        return ids

    def cluster_of(self, run: CatalogRun) -> str:
        """Return the name of the run's cluster, followed by part of its identity where two clusters share the name."""
        name, id = run.summary.cluster, run.summary.cluster_id
        return name if len(self._ids_of_name[name]) == 1 else f"{name} ({id[:8]})"

    @property
    def open_actions(self) -> tuple[tuple[CatalogIncident, ActionItem], ...]:
        """The open action items of the incidents; those of runs are carried from run to run instead."""
        return tuple((one, action) for one in self.incidents for action in one.notes.open_actions)


def read_catalog(reports: Path) -> RunCatalog:
    """Read the runs, incidents and comparisons of a reports folder. Damage in a folder makes it `unreadable`, no error.

    Raises:
        OSError: The reports folder cannot be listed.
    """
    runs: list[CatalogRun] = []
    incidents: list[CatalogIncident] = []
    comparisons: list[CatalogComparison] = []
    unreadable: list[str] = []
    for folder in sorted(path for path in reports.iterdir() if path.is_dir()):
        if (folder / INCIDENT_FILE).is_file():
            _add_incident(folder, incidents, unreadable)
        elif (folder / ARMS_FILE).is_file():
            _add_comparison(folder, comparisons, unreadable)
        elif (folder / "history.jsonl").is_file() or (folder / "report.json").is_file():
            summary = read_summary(folder) or _judge(folder)
            if summary:
                runs.append(CatalogRun(folder, summary))
            else:
                unreadable.append(f"{folder.name}: its history does not say which run it is")
    runs.sort(key=lambda run: run.summary.started, reverse=True)
    incidents.sort(key=lambda one: one.incident.start, reverse=True)
    comparisons.sort(key=lambda one: one.comparison.record.started, reverse=True)
    return RunCatalog(tuple(runs), tuple(incidents), tuple(comparisons), tuple(unreadable))


def _judge(folder: Path) -> Summary | None:
    try:
        found = judged_run(folder)
        return found.summary if found else None
    except Exception:  # the run's verdicts can still be shown; the digest reports that its coverage cannot be judged
        return summarise(load_run_folder(folder))


def _add_comparison(folder: Path, comparisons: list[CatalogComparison], unreadable: list[str]) -> None:
    try:
        comparisons.append(CatalogComparison(folder, read_comparison(folder)))
    except (OSError, ValueError):
        unreadable.append(f"{folder.name}: its comparison.json cannot be read; `gameday report` draws it again")


def _add_incident(folder: Path, incidents: list[CatalogIncident], unreadable: list[str]) -> None:
    try:
        incident = read_incident(folder)
    except (OSError, ValueError) as error:
        unreadable.append(f"{folder.name}: {INCIDENT_FILE} cannot be read ({type(error).__name__})")
        return
    try:
        incidents.append(CatalogIncident(folder, incident, read_notes(folder)))
    except NotesError as error:
        incidents.append(CatalogIncident(folder, incident, Notes(), str(error)))
