"""A league's own record beside its seasons' folders: league.json, by which it goes on where it stopped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import AwareDatetime, Field

from gameday.detectors.facts import facts
from gameday.faults.base import Layer
from gameday.faults.registry import fault_for
from gameday.history.events import Aborted, RunEnded
from gameday.history.journal import read_history
from gameday.plain_file import read_plain, write_whole
from gameday.plan.models import Plan
from gameday.season.record import SEASON_FILE, Assignment, LeftOut, SeasonRecord
from gameday.values.models import FolderName, FrozenModel
from gameday.values.nodes import NodeRole

LEAGUE_FILE = "league.json"
_STARTED = re.compile(r"-\d{8}-\d{6}(-[0-9a-f]{6})?$")
"""The end of a league's id: when it started, in UTC, and what distinguishes it from others of that second."""
_LAYERS = (Layer.KERNEL_LOG, Layer.DCGM_CACHE, Layer.NVML)
_QUARANTINE = "quarantine"
_NOT_TO_QUARANTINE = ("workload", "event", "ignore")
"""Decisions about a line in the kernel log (docs/detectors.md) for which a node stays in service."""


class LeagueFault(FrozenModel):
    """A row of the league: a plan's fault."""

    plan: str
    asked_as: str = Field(description="shipped plan's name, or the path of a plan file")
    title: str
    fault: str
    layer: str
    asks_for_action: bool = Field(description="the driver's line asks to take the node out of service")
    stays_in_service: bool = Field(description="no detector may take the node out of service for this fault")


class LeagueEntry(FrozenModel):
    """A column of the league: a detector."""

    given: str = Field(description="the guest's file, or `ours`")
    name: FolderName
    version: str
    cluster: str = Field(default="embedded", description="the control plane of its rehearsal")
    problem: str = Field(default="", description="why its rehearsal did not go to its end; empty where it did")


class LeagueRecord(FrozenModel):
    """The detectors, the faults and the size of their rehearsals; the table is made out of the seasons' folders."""

    id: str
    title: str
    started: AwareDatetime
    ended: AwareDatetime | None = Field(
        default=None, description="None while it is played, and of one that was cut off"
    )
    source: str = Field(description="the league's document")
    nodes: int
    gpus: int
    seed: int
    at_once: int
    within: str
    entries: tuple[LeagueEntry, ...]
    faults: tuple[LeagueFault, ...]

    @property
    def name(self) -> str:
        """The name that its document gives it."""
        return _STARTED.sub("", self.id.removeprefix("league-"))

    def with_problem(self, entry: LeagueEntry, problem: str) -> LeagueRecord:
        """Return the record with what kept an entry's rehearsal from its end, or empty where nothing does any more."""
        entries = (
            one.model_copy(update={"problem": problem}) if one.name == entry.name else one for one in self.entries
        )
        return self.model_copy(update={"entries": tuple(entries)})


class _File(FrozenModel):
    record: LeagueRecord
    table: object = None


def save_record(folder: Path, content: bytes) -> None:
    """Write league.json whole, or leave what was there. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / LEAGUE_FILE, content)


def load_record(folder: Path) -> LeagueRecord:
    """Return the league's record. Raises OSError, and ValueError for a file that holds something else."""
    return parse_record(read_plain(folder / LEAGUE_FILE))


def parse_record(content: bytes) -> LeagueRecord:
    """Return the record in the content of a league.json. Raises ValueError for something else."""
    return _File.model_validate_json(content).record


def fault_of(plan: Plan, asked_as: str) -> LeagueFault:
    """Return the row of a plan as it is written, which may name a detector of its own.

    Only of lines in the kernel log it is known whether they ask for action: by NVIDIA's catalogue. What a detector
    should do about a value that DCGM or NVML shows is its operator's choice.
    """
    decision, expected = facts(plan.fault).get("decision"), plan.expect.expects_quarantine
    return LeagueFault(
        plan=plan.name,
        asked_as=asked_as,
        title=plan.title,
        fault=plan.fault.type,
        layer=str(fault_for(plan.fault).layer),
        asks_for_action=decision == _QUARANTINE,
        stays_in_service=decision in _NOT_TO_QUARANTINE and not expected,
    )


def plays_by_itself(plan: Plan) -> bool:
    """Return whether a league that names no plans plays this shipped one."""
    is_of_a_gpu = plan.fault.runs_on is NodeRole.GPU and fault_for(plan.fault).layer in _LAYERS
    return is_of_a_gpu and not (plan.dangers() or plan.arms or plan.recover.is_hands_off)


def seasons_of(folder: Path, entry: LeagueEntry) -> list[SeasonRecord]:
    """Return the seasons that a detector watched, the oldest first; one that cannot be read is none."""
    found = []
    for path in (folder / entry.name).glob(f"*/{SEASON_FILE}"):
        try:
            found.append(SeasonRecord.load(path.parent))
        except (OSError, ValueError):
            continue
    return sorted(found, key=lambda season: season.started)


def finished_runs(folder: Path, entry: LeagueEntry) -> dict[str, Path]:
    """Return the folder of each plan's newest run that was played to its end, by the plan's name."""
    places = ((season, place) for season in seasons_of(folder, entry) for place in season.places)
    return {place.plan: path for _, place in places if _is_finished(path := _run_folder(folder, entry, place))}


def left_out(folder: Path, entry: LeagueEntry) -> dict[str, LeftOut]:
    """Return the plans that a season which went to its end did not play, by their names."""
    return {one.plan: one for season in seasons_of(folder, entry) if season.ended for one in season.left_out}


def not_begun(folder: Path, entry: LeagueEntry) -> dict[str, str]:
    """Return why runs of a detector's seasons did not begin, by their plans' names; the newest season's word."""
    return {
        place.plan: season.why_not_begun(place)
        for season in seasons_of(folder, entry)
        for place in season.places
        if season.ended and not (_run_folder(folder, entry, place) / "history.jsonl").is_file()
    }


def still_to_play(record: LeagueRecord, folder: Path, entry: LeagueEntry) -> list[LeagueFault]:
    """Return the faults that a detector has no finished run of, and that its seasons did not leave out."""
    settled = {*finished_runs(folder, entry), *left_out(folder, entry)}
    return [fault for fault in record.faults if fault.plan not in settled]


def is_open(record: LeagueRecord, folder: Path) -> bool:
    """Return whether a further season would play something."""
    return any(still_to_play(record, folder, entry) for entry in record.entries)


def _run_folder(folder: Path, entry: LeagueEntry, place: Assignment) -> Path:
    return folder / entry.name / place.run_id


def _is_finished(run: Path) -> bool:
    """Return whether the run's history has an end and no abort: what a Ctrl-C cut short is played again."""
    try:
        history = read_history(run / "history.jsonl")
    except OSError:
        return False
    return history.last(RunEnded) is not None and history.last(Aborted) is None


def faults_of(plans: Iterator[tuple[str, Plan]]) -> tuple[LeagueFault, ...]:
    """Return the rows of plans, by layer and name."""
    found = (fault_of(plan, asked_as) for asked_as, plan in plans)
    return tuple(sorted(found, key=lambda one: (one.layer, one.plan)))
