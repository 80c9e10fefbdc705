"""Play a season from the command line: the flow in this thread, a line per event of its runs, and the findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gameday.errors import CommandError
from gameday.exit_codes import ExitCode

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State
    from rich.console import Console

    from gameday.cluster.profile import ClusterProfile
    from gameday.runs.season_record import RandomSettings, SeasonResult


@dataclass(frozen=True)
class AskedSeason:
    """A season that a command line asks for."""

    plans: tuple[str, ...]
    seed: int
    at_once: int
    within: timedelta | None
    approved_by: str | None
    reports: Path
    random: RandomSettings | None = None
    """Settings of a random season; None plays each plan `plays` times."""
    plays: int = 1
    after: tuple[str, ...] = ()
    """Folders of seasons that played some of it already."""


def duration_of(option: str, written: str | None) -> timedelta | None:
    """Return the value of an option that is a duration. Raises CommandError if it is none."""
    from pydantic_core import PydanticCustomError

    from gameday.documents.fields import parse_duration

    if written is None:
        return None
    try:
        parsed = parse_duration(written)
    except PydanticCustomError as error:
        raise CommandError(f"{option} {written!r}: {error.message()}") from None
    assert isinstance(parsed, timedelta)
    return parsed


def cluster_profile(profile: str | None) -> ClusterProfile:
    """Return the cluster's profile for a season without --rehearse. Raises CommandError."""
    from gameday.cluster.profile import load_profile
    from gameday.errors import ProfileError

    try:
        return load_profile(profile)
    except ProfileError as error:
        raise CommandError(f"{error}\n--rehearse needs no profile: it starts a cluster of its own") from None


def play_season(out: Console, asked: AskedSeason, profile: str | None, command: str, trigger: str) -> ExitCode:
    """Run the flow in this thread, with a line per event of its runs, and print its findings.

    Args:
        out: The console.
        asked: The season.
        profile: File or block of the cluster profile; None: GAMEDAY_* of the environment.
        command: Shell line that runs the same again.
        trigger: The reason why it is run.

    Returns:
        The season's exit code.

    Raises as `play`.
    """
    from gameday.flows.season import season
    from gameday.run.record import new_run_id
    from gameday.runs.season_record import SEASON_FILE

    if asked.random:
        out.print(f"seed {asked.seed}; the same season again: {command}", style="dim", markup=False, soft_wrap=True)
    id = f"season-{new_run_id()}"
    played = partial(
        season,
        plans=list(asked.plans),
        profile=profile,
        seed=asked.seed,
        at_once=asked.at_once,
        within=asked.within,
        plays=asked.plays,
        after=list(asked.after),
        budget=asked.random.budget if asked.random else None,
        mean_gap=asked.random.mean_gap if asked.random else None,
        approved_by=asked.approved_by,
        reports=str(asked.reports),
        trigger=trigger,
        season_id=id,
        command=command,
    )
    return play(out, id, asked.reports / id / SEASON_FILE, played, _print_season)


def play(
    out: Console,
    id: str,
    record: Path,
    flow: Callable[..., State[SeasonResult]],
    print_page: Callable[[Console, Path], ExitCode],
) -> ExitCode:
    """Run a season's or a comparison's flow in this thread, with a line per event of its runs, and print its findings.

    Args:
        out: The console.
        id: The season's id, with which the names of its runs begin.
        record: The file that the flow writes once it is allowed to begin, in a folder of its own beside the runs.
        flow: The flow with its parameters.
        print_page: Draws the page of the record's folder, prints it, and returns its exit code.

    Returns:
        The exit code of its findings.

    Raises:
        CommandError: It was refused.
        Exception: The flow broke off, and not because Prefect's server is gone.
    """
    from gameday.cli.prefect_client import give_events_up_at_once, gone_message
    from gameday.cli.season_view import SeasonView
    from gameday.runs.season_record import SeasonResult

    result: object
    give_events_up_at_once()
    with SeasonView(record.parent.parent, id, out, record.parent):
        try:
            result = flow(return_state=True).result(raise_on_failure=False)
        except Exception as error:  # an error of Prefect's own, for example; the runs' histories hold their results
            result = error
    gone = gone_message(result) if isinstance(result, BaseException) else ""
    if not record.is_file():
        if isinstance(result, BaseException):
            raise CommandError(gone, ExitCode.REFUSED) if gone else result
        assert isinstance(result, SeasonResult)
        raise CommandError(result.why, ExitCode(result.exit_code))
    code = print_page(out, record.parent)
    if isinstance(result, BaseException):
        if not gone and code != ExitCode.DIRTY:
            raise result
        out.print(gone or f"{type(result).__name__}: {result}", style="yellow", markup=False, soft_wrap=True)
    return code


def _print_season(out: Console, folder: Path) -> ExitCode:
    from gameday.cli.coverage_table import print_coverage
    from gameday.runs.season_page import render_season

    return print_coverage(out, render_season(folder, datetime.now(UTC)))
