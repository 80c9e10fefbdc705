"""The catalog of a reports folder: runs with their summaries, incidents with people's notes, groups of runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from pydantic import AwareDatetime, BaseModel

from gameday.errors import NotesError
from gameday.exit_codes import ExitCode
from gameday.plain_file import read_plain
from gameday.post_mortem.incident import INCIDENT_FILE, Incident, read_incident
from gameday.report.notes import ActionItem, Notes, read_notes
from gameday.runs.comparison import read_comparison
from gameday.runs.run_list import ARMS_FILE, CatalogRun, RunningRun, list_runs
from gameday.values.results import Cleanliness

_FLEET_REPORT = "fleet-report.json"


@dataclass(frozen=True)
class CatalogIncident:
    """An incident's folder, its record, and what people wrote about it."""

    folder: Path
    incident: Incident
    notes: Notes
    problem: str = ""
    """The reason why the notes cannot be read; empty if they can."""


class GroupKind(StrEnum):
    """The purpose for which game-days are played together, or GPUs are measured together."""

    COMPARISON = "comparison"
    FLEET = "fleet"


@dataclass(frozen=True)
class RunGroup:
    """A comparison or a fleet run, and what its page says.

    The game-days of a comparison are in its folder and are no runs of the catalog; a fleet run plays none.
    """

    kind: GroupKind
    folder: Path
    id: str
    title: str
    started: datetime
    ended: datetime | None
    columns: tuple[str, ...]
    """Titles of its arms, or models of its GPUs."""
    result: str
    doubt: str
    """A sentence if a cluster was left not provably clean; else empty."""
    plans: frozenset[str]
    """Names of the plans that it played."""
    series: tuple[str, ...]
    """Key that is equal for groups that are pruned together; the newest of them stay."""

    @property
    def page(self) -> str:
        """The name of its page in its folder."""
        return f"{self.kind}.html"


class _FleetRecord(BaseModel):
    id: str
    cluster: str
    started: AwareDatetime
    ended: AwareDatetime | None
    cleanliness: Cleanliness


class _FleetModel(BaseModel):
    model: str


class _FleetReport(BaseModel):
    """The part of a fleet run's page (fleet-report.json) that a list of all runs shows."""

    record: _FleetRecord
    models: tuple[_FleetModel, ...]
    headline: str


@dataclass(frozen=True)
class RunCatalog:
    """The runs that have ended, incidents, and groups of runs of a reports folder, newest first."""

    runs: tuple[CatalogRun, ...]
    incidents: tuple[CatalogIncident, ...]
    groups: tuple[RunGroup, ...]
    unreadable: tuple[str, ...]
    """A sentence for each folder that cannot be listed."""
    running: tuple[RunningRun, ...] = ()
    """The runs that have not ended."""

    @cached_property
    def _ids_of_name(self) -> dict[str, set[str]]:
        ids: dict[str, set[str]] = {}
        for run in self.runs:
            ids.setdefault(run.summary.cluster, set()).add(run.summary.cluster_id)
        return ids

    @property
    def comparisons(self) -> list[RunGroup]:
        return [one for one in self.groups if one.kind is GroupKind.COMPARISON]

    @property
    def fleets(self) -> list[RunGroup]:
        return [one for one in self.groups if one.kind is GroupKind.FLEET]

    def cluster_of(self, run: CatalogRun) -> str:
        """Return the name of the run's cluster, with part of its identity if two clusters share the name."""
        one = run.summary
        return one.place if len(self._ids_of_name[one.cluster]) == 1 else f"{one.place} ({one.cluster_id[:8]})"

    @property
    def open_actions(self) -> tuple[tuple[CatalogIncident, ActionItem], ...]:
        """The open action items of the incidents; those of runs are carried from run to run instead."""
        return tuple((one, action) for one in self.incidents for action in one.notes.open_actions)


def read_catalog(reports: Path) -> RunCatalog:
    """Read all that a reports folder holds, except the repository's sample. A damaged folder becomes `unreadable`.

    Raises:
        OSError: The reports folder cannot be listed.
    """
    listed = list_runs(reports)
    incidents: list[CatalogIncident] = []
    groups: list[RunGroup] = []
    unreadable = list(listed.unreadable)
    for folder in listed.others:
        if (folder / INCIDENT_FILE).is_file():
            _add_incident(folder, incidents, unreadable)
        elif (folder / ARMS_FILE).is_file():
            _add_group(folder, _comparison, "comparison.json", groups, unreadable)
        else:
            _add_group(folder, _fleet, _FLEET_REPORT, groups, unreadable)
    incidents.sort(key=lambda one: one.incident.start, reverse=True)
    groups.sort(key=lambda one: one.started, reverse=True)
    return RunCatalog(listed.runs, tuple(incidents), tuple(groups), tuple(sorted(unreadable)), listed.running)


def _add_group(
    folder: Path, read: Callable[[Path], RunGroup], file: str, groups: list[RunGroup], unreadable: list[str]
) -> None:
    try:
        groups.append(read(folder))
    except (OSError, ValueError) as error:
        command = f"gameday fleet --again {folder}" if file == _FLEET_REPORT else "gameday report"
        missing = f"it has no {file} yet: it is still running, or it was killed"
        why = missing if isinstance(error, FileNotFoundError) else f"its {file} cannot be read"
        unreadable.append(f"{folder.name}: {why}; `{command}` draws it again")


def _comparison(folder: Path) -> RunGroup:
    """Raise OSError, and ValueError for a file that holds something else."""
    compared = read_comparison(folder)
    record, result = compared.record, compared.result
    return RunGroup(
        kind=GroupKind.COMPARISON,
        folder=folder,
        id=record.id,
        title=record.title,
        started=record.started,
        ended=record.ended,
        columns=tuple(column.arm.title for column in compared.arms),
        result=result.why,
        doubt=result.why if result.exit_code in (ExitCode.DIRTY, ExitCode.UNKNOWN) else "",
        plans=frozenset({record.plan}),
        series=(record.plan, record.cluster),
    )


def _fleet(folder: Path) -> RunGroup:
    """Raise OSError, and ValueError for a file that holds something else."""
    content = _FleetReport.model_validate_json(read_plain(folder / _FLEET_REPORT))
    record = content.record
    unclean = record.cleanliness is not Cleanliness.CLEAN
    return RunGroup(
        kind=GroupKind.FLEET,
        folder=folder,
        id=record.id,
        title=f"Fleet of {record.cluster}",
        started=record.started,
        ended=record.ended,
        columns=tuple(model.model for model in content.models),
        result=content.headline,
        doubt=f"the fleet run left the cluster {record.cleanliness}" if unclean else "",
        plans=frozenset(),
        series=(record.cluster,),
    )


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
