"""The runs of a reports folder, with their summaries.

A run that was killed before its report was rendered is judged from its history, so that the worst runs are listed
as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import AwareDatetime, Field

from gameday.history.events import RunStarted
from gameday.history.journal import History, read_history
from gameday.history.written_now import is_written_now
from gameday.report.earlier_runs import SAMPLE_FOLDER
from gameday.report.run_folder import load_run_folder
from gameday.report.summarise import summarise
from gameday.report.summary import Summary, read_summary
from gameday.runs.matrix import CoverageMatrix
from gameday.runs.run_row import judged_run
from gameday.values.models import FrozenModel

INCIDENT_FILE, ARMS_FILE, FLEET_FILE = "incident.json", "arms.json", "fleet.json"
"""The files that tell the folder of an incident, a comparison or a fleet run."""


@dataclass(frozen=True)
class CatalogRun:
    """A run's folder and its summary."""

    folder: Path
    summary: Summary
    row: CoverageMatrix | None = None
    """Its row of the coverage matrix, if it left none and was judged when it was listed."""


class RunningRun(FrozenModel):
    """A run that had not ended when the catalog was read, so it is not judged."""

    run_id: str
    plan: str = Field(description="empty until the run has asked its cluster for the first time")
    since: AwareDatetime | None = Field(description="None until then")

    @property
    def words(self) -> str:
        """The run and its plan, and when it began."""
        since = f", since {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else ""
        return f"{self.plan or 'a game-day that begins'} ({self.run_id}){since}"


@dataclass(frozen=True)
class RunList:
    """The runs that have ended, newest first, those that have not, and the other folders."""

    runs: tuple[CatalogRun, ...]
    running: tuple[RunningRun, ...]
    unreadable: tuple[str, ...]
    """A sentence for each folder that cannot be listed."""
    others: tuple[Path, ...]
    """Folders of incidents, comparisons and fleet runs."""


def list_runs(reports: Path) -> RunList:
    """Read the runs in a reports folder, except the repository's sample and the runs of comparisons.

    Raises:
        OSError: The reports folder cannot be listed.
    """
    runs, unreadable, others, played = [], [], [], []
    for folder in sorted(path for path in reports.iterdir() if path.is_dir() and path.name != SAMPLE_FOLDER):
        if folder.is_symlink():  # its run would be listed and kept twice, or be in a place that is not ours to write
            unreadable.append(f"{folder.name}: it is a symbolic link, and none is followed here")
        elif any((folder / file).is_file() for file in (INCIDENT_FILE, ARMS_FILE, FLEET_FILE)):
            others.append(folder)
        elif (folder / "history.jsonl").is_file() or (folder / "report.json").is_file():
            played.append(folder)
    running = {folder: history for folder in played if (history := _unfinished(folder))}
    for folder in (one for one in played if one not in running):
        summary = read_summary(folder)
        if listed := CatalogRun(folder, summary) if summary else _judge(folder):
            runs.append(listed)
        else:
            unreadable.append(f"{folder.name}: its history does not say which run it is")
    runs.sort(key=lambda run: run.summary.started, reverse=True)
    return RunList(tuple(runs), tuple(map(_running, running, running.values())), tuple(unreadable), tuple(others))


def _unfinished(folder: Path) -> History | None:
    """Return the history of a run that has not ended; None for any other."""
    path = folder / "history.jsonl"
    return history if is_written_now(path) and (history := read_history(path)).is_running else None


def _running(folder: Path, history: History) -> RunningRun:
    started = history.first(RunStarted)
    since = history.records[0].at if history.records else None
    return RunningRun(run_id=folder.name, plan=started.plan_name if started else "", since=since)


def _judge(folder: Path) -> CatalogRun | None:
    """Return a run that left no summary; None if its history does not say which run it is."""
    row = None
    try:
        found = judged_run(folder)
        summary, row = (found.summary, found.row) if found else (None, None)
    except Exception:  # the run's verdicts can still be shown; the digest reports that its coverage cannot be judged
        summary = summarise(load_run_folder(folder))
    return CatalogRun(folder, summary, row) if summary else None
