"""Read a run folder and forgive everything: a report that fails on damage hides the run that needs it most."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from gameday.checks.facts import seconds_text, target_nodes
from gameday.checks.outcome import RunResult, fold_outcome
from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.errors import NotesError
from gameday.history.events import (
    DetectorConsulted,
    FaultInjected,
    FaultUndone,
    GuestNamed,
    Record,
    RunStarted,
    TargetsChosen,
)
from gameday.history.events.guests import GUEST_FOLDER
from gameday.history.frames import Frames
from gameday.history.journal import History, read_history
from gameday.history.other_events import UnknownEvent
from gameday.plain_file import open_plain, read_plain
from gameday.plan.expectations import every_expectation
from gameday.plan.fault import FaultParameters
from gameday.plan.models import Plan
from gameday.plan.settings import every_setting
from gameday.report.doctors_word import DoctorsWord, doctors_word
from gameday.report.notes import CarriedAction, Notes, read_notes
from gameday.report.summary import Summary
from gameday.text import printable, without_secrets
from gameday.values.dated import CLOCK_TOLERANCE_S

if TYPE_CHECKING:
    import pandas as pd
from gameday.values.models import FrozenModel

_GUEST_LINES = 200
_LISTED = 10
"""The most names that a problem lists; a folder from somebody else may have any number."""
_INSTALL = "install the package with which the run was made, and render the report again"
_IN_FOLDERS = ("frames/*.parquet", f"{GUEST_FOLDER}/*.log")


class OpenFault(FaultParameters):
    """Parameters of a fault that this version may not know: kept as they are, and not judged."""

    is_read_back: ClassVar[bool] = True
    model_config = ConfigDict(extra="allow")


class _AnyFault(Mapping[str, type[FaultParameters]]):
    """A registry that knows every fault name, so that a report needs no fault code to read a plan."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __getitem__(self, name: str) -> type[FaultParameters]:
        return OpenFault

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True)
class RunFile:
    """A file of the run folder, with what a reader needs to check it."""

    name: str
    size_bytes: int
    sha256: str


class GuestOutput(FrozenModel):
    """The last lines of one of the guest's programs, in the run's own time."""

    instance: str
    """The node that the program watches, or `cluster`."""
    lines: tuple[str, ...]
    lines_left_out: int


@dataclass(frozen=True)
class RunFolder:
    """Everything that a section may use. `zero` is T+0: the moment of the first fault, else the first record."""

    plan: Plan | None
    plan_text: str
    history: History
    frames: Frames
    verdicts: tuple[Verdict, ...]
    result: RunResult
    files: tuple[RunFile, ...]
    problems: tuple[str, ...]
    """Sentences about defects of the folder itself."""

    guest_output: tuple[GuestOutput, ...] = ()
    """The last lines that the guest's programs wrote."""

    earlier: tuple[Summary, ...] = ()
    """Earlier runs of the same plan found beside this one, oldest first."""

    notes: Notes = field(default_factory=Notes)
    """Notes that people wrote beside the run."""

    notes_problem: str = ""
    """The reason why the notes cannot be read; empty if they can."""

    carried: tuple[CarriedAction, ...] = ()
    """Open actions of earlier runs of the plan."""

    previous_plan_text: str = ""
    """The plan of the newest earlier run; empty if there is none, or if it cannot be read."""

    @cached_property
    def _metrics_by_node(self) -> dict[str, pd.DataFrame]:
        return {str(node): rows for node, rows in self.frames.metrics.groupby("node", sort=False)}

    @cached_property
    def _no_metrics(self) -> pd.DataFrame:
        return self.frames.metrics.iloc[:0]

    def metrics_of(self, node: str) -> pd.DataFrame:
        """Return a node's rows of the metrics frame, in its order."""
        found = self._metrics_by_node.get(node)
        return self._no_metrics if found is None else found

    @cached_property
    def target_names(self) -> tuple[str, ...]:
        return tuple(node for node in target_nodes(self.history) if node)

    @property
    def started(self) -> RunStarted | None:
        return self.history.first(RunStarted)

    @cached_property
    def virtual_targets(self) -> tuple[str, ...]:
        """The targets without a machine behind them: all of a rehearsal's cluster; elsewhere, as the nodes say."""
        chosen = self.history.last(TargetsChosen)
        return self.target_names if self._in_rehearsal else chosen.virtual if chosen else ()

    @property
    def is_virtual(self) -> bool:
        """True if no target is a real node; before any is chosen, if the cluster has none."""
        return self._in_rehearsal or (bool(self.target_names) and set(self.target_names) == set(self.virtual_targets))

    @property
    def _in_rehearsal(self) -> bool:
        # Histories from before `virtual` only tell that `gameday rehearse` made them.
        return self.started is not None and (self.started.virtual or self.started.trigger == "rehearsal")

    @property
    def doctors_word(self) -> DoctorsWord | None:
        """Doctor's answer about what went unnoticed; None if it was not asked, or if the run passed."""
        return doctors_word(self.history, self.result.outcome)

    @property
    def named_detector(self) -> str | None:
        """The guest that watched, else the detector that the plan names; None if it names none.

        No history says which detector watched a cluster without a guest.
        """
        if guest := self.history.last(GuestNamed):
            return f"{' '.join(filter(None, (guest.name, guest.version)))}, a guest of the rehearsal"
        consulted = self.history.last(DetectorConsulted)
        return consulted.detector if consulted else None

    @cached_property
    def zero(self) -> datetime | None:
        fault = min((event.written_at for event in self.history.of(FaultInjected)), default=None)
        return fault or (self.history.records[0].at if self.history.records else None)

    def offset_s(self, at: datetime) -> float:
        """Seconds since T+0; 0.0 in a run without any record."""
        return (at - self.zero).total_seconds() if self.zero else 0.0

    def fault_window(self, node: str | None = None) -> tuple[float, float] | None:
        """Return the time from the fault going in to its undo, in seconds since T+0.

        It ends at the last record if no undo is on record. `node` None spans the faults of all nodes. None if no
        fault went in.
        """
        faults = [event for event in self.history.of(FaultInjected) if node in (None, event.target.node)]
        if not faults:
            return None
        intents = {fault.intent for fault in faults}
        undone = [record.at for record, event in self.history.with_times(FaultUndone) if event.intent in intents]
        end = max(undone, default=self.history.records[-1].at)
        return self.offset_s(min(fault.written_at for fault in faults)), self.offset_s(end)


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Hold off Python's garbage collection while many records are read.

    Going through 50,000 records again and again, as they are read and judged, is two thirds of the time for a run with
    500 nodes. A caller that drops the run within the block pays for no collection at all.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@garbage_collection_paused()
def load_run_folder(folder: Path) -> RunFolder:
    """Read what can be read of a run; `problems` names the rest. Raises FileNotFoundError without a folder."""
    run = judge_run_folder(folder)
    return replace(
        run,
        files=tuple(_files(folder)),
        problems=(
            *run.problems,
            *_links(folder),
            *_plan_mismatch(folder / "plan.yaml", run.history),
            *clock_jumps(run.history),
        ),
        guest_output=tuple(_guest_output(folder)),
    )


@garbage_collection_paused()
def judge_run_folder(folder: Path) -> RunFolder:
    """Read only what a run is judged by: not the files and problems that only a page shows.

    Raises FileNotFoundError without a folder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a run folder: give the folder that holds history.jsonl")
    problems: list[str] = []
    plan_text = _text(folder / "plan.yaml", problems)
    left_out: list[str] = []
    plan = _plan(folder / "plan.json", problems, left_out)
    history = _history(folder / "history.jsonl", problems)
    frames = _frames(folder / "frames", problems)
    verdicts = [*run_checks(plan, history, frames), *map(_not_judged, left_out)] if plan else [_no_plan()]
    return RunFolder(
        plan=plan,
        plan_text=plan_text,
        history=history,
        frames=frames,
        verdicts=tuple(verdicts),
        result=fold_outcome(history, verdicts),
        files=(),
        problems=tuple(problems),
    )


def _guest_output(folder: Path) -> Iterator[GuestOutput]:
    """Yield the last lines of each file; unreadable files are left out."""
    for path in _plain_files(folder, f"{GUEST_FOLDER}/*.log"):
        try:
            lines = read_plain(path).decode(errors="replace").splitlines()
        except OSError:
            continue
        kept = tuple(without_secrets(printable(line)) for line in lines[-_GUEST_LINES:])
        yield GuestOutput(instance=path.stem, lines=kept, lines_left_out=len(lines) - len(kept))


def with_notes(folder: Path, run: RunFolder) -> RunFolder:
    """Return the run with its people's notes; unreadable notes are a problem of the run's files."""
    try:
        return replace(run, notes=read_notes(folder))
    except NotesError as error:
        problem = f"The notes people wrote are not shown: {error}"
        return replace(run, notes_problem=str(error), problems=(*run.problems, problem))


def _no_plan() -> Verdict:
    return Verdict(
        check="plan",
        expectation="The plan that ran can be read",
        status=Status.UNKNOWN,
        why="plan.json is missing or damaged, so no expectation can be judged",
    )


def _not_judged(key: str) -> Verdict:
    return Verdict(
        check=key.replace("_", "-"),
        expectation=f"The expectation {key} of the plan holds",
        status=Status.UNKNOWN,
        why=f"no package that is installed here defines expect.{key}; {_INSTALL}",
    )


def _text(path: Path, problems: list[str]) -> str:
    try:
        return read_plain(path).decode(errors="replace")
    except OSError as error:
        problems.append(f"{path.name} cannot be read ({error.strerror}): the plan's text is not shown.")
        return ""


def _plan(path: Path, problems: list[str], left_out: list[str]) -> Plan | None:
    """Return the plan without the keys of packages that are not here; `left_out` receives those of expectations."""
    try:
        stored = from_json(read_plain(path))
        expectations = _take_out(stored, "expect", every_expectation())
        settings = _take_out(stored, "settings", every_setting())
        plan = Plan.model_validate(stored, context={"faults": _AnyFault()})
    except OSError as error:
        problems.append(f"{path.name} cannot be read ({error.strerror}): expectations cannot be judged.")
        return None
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "the file"
        problems.append(f"{path.name} is damaged ({where}: {error.errors()[0]['msg']}): expectations cannot be judged.")
        return None
    except ValueError as error:
        problems.append(f"{path.name} is damaged ({error}): expectations cannot be judged.")
        return None
    left_out += expectations
    if keys := [*(f"expect.{key}" for key in expectations), *(f"settings.{key}" for key in settings)]:
        problems.append(f"{path.name}: no package that is installed here defines {_listed(keys)}; {_INSTALL}.")
    return plan


def _take_out(stored: object, part: str, model: type[BaseModel]) -> list[str]:
    """Remove a part's keys that the model lacks, and return those that the plan gives.

    A stored plan has every key that was known where it ran; one that is null, false or an empty list was not given.
    """
    document = stored.get(part) if isinstance(stored, dict) else None
    if not isinstance(document, dict):
        return []
    unknown = {key: document.pop(key) for key in document.keys() - model.model_fields.keys()}
    return sorted(printable(key) for key, value in unknown.items() if value not in ([], None) and value is not False)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(map(printable, names[:_LISTED])) + (f" and {more} more" if more > 0 else "")


def _history(path: Path, problems: list[str]) -> History:
    try:
        history = read_history(path)
    except OSError as error:
        problems.append(f"{path.name} cannot be read ({error.strerror}): nothing is known of the run.")
        return History(())
    if history.damaged:
        lines = f"{history.damaged} line{'' if history.damaged == 1 else 's'}"
        problems.append(f"{path.name}: {lines} could not be decoded and were skipped; what they said is not known.")
    if kinds := history.unknown_kinds:
        count = len(history.of(UnknownEvent))
        problems.append(
            f"{path.name}: {count} event{'' if count == 1 else 's'} of {_listed(kinds)} are of a package that is not "
            "installed here; they are kept, and not judged."
        )
    return history


def _frames(folder: Path, problems: list[str]) -> Frames:
    if not folder.is_dir():
        problems.append("The frames folder is missing: metrics, alerts and log lines are not measured.")
        return Frames()
    try:
        return Frames.load(folder)
    except Exception as error:  # a Parquet file can be damaged in more ways than its reader names
        problems.append(f"The frames are damaged ({type(error).__name__}: {error}): metrics are not measured.")
        return Frames()


def _plan_mismatch(path: Path, history: History) -> list[str]:
    started = history.first(RunStarted)
    if not started or path.is_symlink() or not path.is_file() or _sha256(path) == started.plan_sha256:
        return []
    return ["plan.yaml is not the file that ran: its SHA-256 differs from the one the run recorded."]


def clock_jumps(history: History) -> list[str]:
    """Name each jump of the wall clock against the monotonic one between two records of one process."""
    found = []
    previous: dict[str, Record] = {}
    for record in history.records:
        before = previous.get(record.boot)
        if before:
            drift = (record.at - before.at).total_seconds() - (record.monotonic - before.monotonic)
            if abs(drift) > CLOCK_TOLERANCE_S:
                found.append(
                    f"The wall clock jumped by {drift:+.1f} s before record {record.seq} "
                    f"({record.at:%H:%M:%S} UTC): times across it are off by {seconds_text(abs(drift))}."
                )
        previous[record.boot] = record
    return found


def _files(folder: Path) -> list[RunFile]:
    """Return the run's own files, without those that rendering writes."""
    return [
        RunFile(path.relative_to(folder).as_posix(), path.stat().st_size, _sha256(path))
        for path in _plain_files(folder, "plan.yaml", "plan.json", "history.jsonl", *_IN_FOLDERS)
    ]


def _plain_files(folder: Path, *patterns: str) -> list[Path]:
    """Return the run's files of these names, without links and without anything in a linked folder."""
    found = [path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()]
    return [path for path in found if not path.is_symlink() and (path.parent == folder or not path.parent.is_symlink())]


def _links(folder: Path) -> list[str]:
    """Name each link in place of a folder, or of a file in one; the other files' readers name theirs."""
    places = [folder / "frames", folder / GUEST_FOLDER, *(path for name in _IN_FOLDERS for path in folder.glob(name))]
    links = [path.relative_to(folder) for path in places if path.is_symlink()]
    return [f"{link} is a symbolic link, which is not followed: nothing of what it names is shown." for link in links]


def _sha256(path: Path) -> str:
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
