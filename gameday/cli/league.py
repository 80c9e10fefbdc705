"""`gameday league`: one season per detector, each in a rehearsal of its own, and one page that compares them."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.game_day import Reports, check_reports
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.plain_file import NO_PLACE, not_written
from gameday.text import printable

if TYPE_CHECKING:
    from types import FrameType

    from rich.console import Console

    from gameday.league.document import League
    from gameday.league.page import RenderedLeague
    from gameday.league.record import LeagueEntry, LeagueFault, LeagueRecord

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ENDS_A_SEASON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The season was played and its findings are on the page; everything else is said beside the detector.
_FINDINGS = (ExitCode.PASSED, ExitCode.FAILED, ExitCode.UNKNOWN, ExitCode.DIRTY)

File = Annotated[Path | None, typer.Argument(help="The league's file (docs/league.md).")]
Resume = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder of an interrupted league. Plays what is missing.")
]
Again = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder of a league. Draws its page again; runs nothing.")
]
Markdown = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table as Markdown.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app, league, "gameday league league.yaml", "gameday league --resume reports/league-…", panel=Panel.DETECTORS
    )


def league(
    file: File = None,
    resume: Resume = None,
    again: Again = None,
    markdown: Markdown = None,
    reports: Reports = Path("reports"),
) -> int:
    """Let real detectors notice the same faults, each in a rehearsal of its own, and compare them on one page.

    Exit code 0 when everything was played, 3 when it was stopped (`--resume` goes on), 4 when a cluster was left dirty.
    """
    out = console()
    if [file, resume, again].count(None) != 2:
        raise CommandError("name the league's file, or --resume a league's folder, or draw one --again")
    if again is not None:
        return _finish(out, _drawn(again), markdown)
    if resume is not None:
        folder, record = resume, _stored(resume)
    else:
        assert file is not None
        record = _new_record(file)
        folder = reports / record.id
    from gameday.league.record import is_open  # noqa: PLC0415

    check_reports(folder)
    code = _play(out, record, folder)
    rendered = _drawn(folder)
    _finish(out, rendered, markdown)
    if rendered.content.record.ended is None or is_open(rendered.content.record, folder):
        out.print(
            f"not everything was played; go on with: gameday league --resume {printable(str(folder))}", soft_wrap=True
        )
    return code


def _new_record(file: Path) -> LeagueRecord:
    """Return the record of a league that begins. Raises DocumentError or CommandError where anything is wrong."""
    from gameday.documents.fields import format_duration  # noqa: PLC0415
    from gameday.league.document import read_league  # noqa: PLC0415
    from gameday.league.record import LeagueRecord  # noqa: PLC0415
    from gameday.run.record import new_run_id  # noqa: PLC0415

    document = read_league(file)
    return LeagueRecord(
        id=f"league-{document.name}-{new_run_id()}",
        title=document.title,
        started=datetime.now(UTC),
        source=file.read_text(encoding="utf-8"),
        nodes=document.nodes,
        gpus=document.gpus,
        seed=document.seed,
        at_once=document.at_once,
        within=format_duration(document.within),
        entries=tuple(_entries(document, file.parent)),
        faults=_faults(document, file.parent),
    )


def _entries(document: League, beside: Path) -> list[LeagueEntry]:
    from gameday import __version__  # noqa: PLC0415
    from gameday.errors import ProgramMissingError  # noqa: PLC0415
    from gameday.guests.load import load_guest  # noqa: PLC0415
    from gameday.league.document import OURS  # noqa: PLC0415
    from gameday.league.record import LeagueEntry  # noqa: PLC0415

    entries = []
    for given in document.guests:
        if given == OURS:
            entries.append(LeagueEntry(given=OURS, name=OURS, version=f"gpu-gameday {__version__}"))
            continue
        path = (beside / given).resolve()
        try:
            guest = load_guest(str(path)).guest
        except ProgramMissingError as error:
            raise CommandError(f"{error}; or take {given} out of the league", ExitCode.REFUSED) from None
        if guest.name in {entry.name for entry in entries}:
            raise CommandError(f"two detectors of this league are called {guest.name}: rename one in its guest's file")
        entries.append(LeagueEntry(given=str(path), name=guest.name, version=guest.version, cluster=guest.cluster))
    return entries


def _faults(document: League, beside: Path) -> tuple[LeagueFault, ...]:
    from gameday.detectors.resolve import load_complete_plan  # noqa: PLC0415
    from gameday.league.record import faults_of, plays_by_itself  # noqa: PLC0415
    from gameday.plan.catalogue import find_plan, shipped_plans  # noqa: PLC0415

    if not document.plans:
        shipped = ((name, load_complete_plan(path).plan) for name, path in shipped_plans().items())
        return faults_of((name, plan) for name, plan in shipped if plays_by_itself(plan))
    named = [str((beside / name).resolve()) if name.endswith((".yaml", ".yml")) else name for name in document.plans]
    return faults_of((name, load_complete_plan(find_plan(name)).plan) for name in named)


def _play(out: Console, record: LeagueRecord, folder: Path) -> ExitCode:
    """Play what each detector has no finished run of, one detector after the other; league.json is kept up to date."""
    from gameday.league.page import write_league  # noqa: PLC0415
    from gameday.league.record import still_to_play  # noqa: PLC0415

    worst = ExitCode.PASSED
    for name in [entry.name for entry in record.entries]:
        entry = next(one for one in record.entries if one.name == name)
        write_league(folder, record, datetime.now(UTC))
        faults = still_to_play(record, folder, entry)
        if not faults:
            continue
        out.rule(printable(f"{entry.name} {entry.version}: {len(faults)} of {len(record.faults)} faults"))
        played = _season(_command(record, entry, faults, folder))
        worst = ExitCode.DIRTY if played.code == ExitCode.DIRTY else worst
        if played.stopped:
            return worst or ExitCode.ABORTED
        said = "" if played.code in _FINDINGS else f"its rehearsal ended with exit code {played.code}"
        record = record.with_problem(entry, said)
    write_league(folder, record.model_copy(update={"ended": datetime.now(UTC)}), datetime.now(UTC))
    return worst


def _command(record: LeagueRecord, entry: LeagueEntry, faults: list[LeagueFault], folder: Path) -> list[str]:
    """Return the command line of a detector's season."""
    from gameday.league.document import OURS  # noqa: PLC0415

    size = ["--nodes", str(record.nodes), "--gpus", str(record.gpus), "--seed", str(record.seed)]
    pace = ["--at-once", str(record.at_once), "--within", record.within]
    watching = [] if entry.given == OURS else ["--guest", entry.given, "--cluster", entry.cluster]
    plans = [fault.asked_as for fault in faults]
    season = ["coverage", *plans, "--rehearse", *size, *pace, *watching, "--reports", str(folder / entry.name)]
    return [sys.executable, "-m", "gameday.cli", *season]


@dataclass(frozen=True)
class _Played:
    """A season's end: its exit code, and whether a signal to this process ended it."""

    code: int
    stopped: bool


def _season(command: list[str]) -> _Played:
    """Play a season in a process of its own.

    Prefect's settings are a process's own, and each rehearsal has another server. The process gets every signal that
    this one gets, and ends, undoing, when this one is killed.
    """
    got: list[int] = []
    child = subprocess.Popen(command, process_group=0, preexec_fn=_end_with_parent)  # noqa: PLW1509 - no threads here

    def forward(number: int, frame: FrameType | None) -> None:
        got.append(number)
        if child.poll() is None:
            child.send_signal(number)

    before = {which: signal.signal(which, forward) for which in _ENDS_A_SEASON}
    try:
        code = child.wait()
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
    return _Played(code, stopped=bool(got))


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def _stored(folder: Path) -> LeagueRecord:
    from gameday.league.record import load_record  # noqa: PLC0415

    try:
        return load_record(folder)
    except (OSError, ValueError) as error:
        raise _no_folder(folder, error) from None


def _drawn(folder: Path) -> RenderedLeague:
    from gameday.league.page import render_league  # noqa: PLC0415

    try:
        return render_league(folder, datetime.now(UTC))
    except (OSError, ValueError) as error:
        raise _no_folder(folder, error) from None


def _no_folder(folder: Path, error: OSError | ValueError) -> CommandError:
    if isinstance(error, OSError) and error.errno in NO_PLACE:
        return CommandError(f"the league's page cannot be written: {not_written(error, folder)}")
    why = error.strerror if isinstance(error, OSError) else "league.json is damaged"
    return CommandError(f"{printable(str(folder))} is no league's folder: {why}")


def _finish(out: Console, rendered: RenderedLeague, markdown: Path | None) -> ExitCode:
    """Print each detector's tally and where the page is; write the Markdown that was asked for."""
    for one in rendered.content.table.tallies:
        said = f"{one.name} {one.version}: noticed {one.noticed} of {one.played}, wrongly acted {one.wrong}"
        said += f", unknown {one.unknown}" if one.unknown else ""
        out.print(printable(said + (f" ({one.problem})" if one.problem else "")), markup=False, soft_wrap=True)
    if markdown is not None:
        try:
            markdown.write_text(rendered.markdown, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"the table cannot be written: {printable(not_written(error, markdown))}") from None
    out.print(str(rendered.html), soft_wrap=True)
    return ExitCode.PASSED
