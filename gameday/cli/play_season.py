"""Play a season from the command line: the flow in this thread, a line per event of its runs, and the findings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gameday.errors import CommandError
from gameday.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.cluster.profile import ClusterProfile
    from gameday.season.record import RandomSettings


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
    """Settings of a random season; None plays each plan once."""


def duration_of(option: str, written: str | None) -> timedelta | None:
    """Return the value of an option that is a duration. Raises CommandError if it is none."""
    from pydantic_core import PydanticCustomError  # noqa: PLC0415

    from gameday.documents.fields import parse_duration  # noqa: PLC0415

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
    from gameday.cluster.profile import load_profile  # noqa: PLC0415
    from gameday.errors import ProfileError  # noqa: PLC0415

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

    Raises:
        CommandError: It was refused.
    """
    from gameday.cli.coverage_table import print_coverage  # noqa: PLC0415
    from gameday.cli.prefect_client import give_events_up_at_once  # noqa: PLC0415
    from gameday.cli.season_view import SeasonView  # noqa: PLC0415
    from gameday.coverage.page import render_season  # noqa: PLC0415
    from gameday.flows.season import season  # noqa: PLC0415
    from gameday.run.record import new_run_id  # noqa: PLC0415
    from gameday.season.record import SEASON_FILE, SeasonResult  # noqa: PLC0415

    if asked.random:
        out.print(f"seed {asked.seed}; the same season again: {command}", style="dim", markup=False, soft_wrap=True)
    id = f"season-{new_run_id()}"
    folder = asked.reports / id
    result: object
    give_events_up_at_once()
    with SeasonView(asked.reports, id, out, folder):
        try:
            state = season(
                plans=list(asked.plans),
                profile=profile,
                seed=asked.seed,
                at_once=asked.at_once,
                within=asked.within,
                budget=asked.random.budget if asked.random else None,
                mean_gap=asked.random.mean_gap if asked.random else None,
                approved_by=asked.approved_by,
                reports=str(asked.reports),
                trigger=trigger,
                season_id=id,
                command=command,
                return_state=True,
            )
            result = state.result(raise_on_failure=False)
        except Exception as error:  # an error of Prefect's own, for example; the runs' histories hold their results
            result = error
    if isinstance(result, BaseException):
        return _after(result, out, folder)
    if not (folder / SEASON_FILE).is_file():
        assert isinstance(result, SeasonResult)
        raise CommandError(result.why, ExitCode(result.exit_code))
    return print_coverage(out, render_season(folder, datetime.now(UTC)))


def _after(error: BaseException, out: Console, folder: Path) -> ExitCode:
    """Print what the runs found before `error`; raise it unless only Prefect's server is gone."""
    from gameday.cli.coverage_table import print_coverage  # noqa: PLC0415
    from gameday.cli.prefect_client import gone_message  # noqa: PLC0415
    from gameday.coverage.page import render_season  # noqa: PLC0415
    from gameday.season.record import SEASON_FILE  # noqa: PLC0415

    gone = gone_message(error)
    if not (folder / SEASON_FILE).is_file():
        raise CommandError(gone, ExitCode.REFUSED) if gone else error
    code = print_coverage(out, render_season(folder, datetime.now(UTC)))
    if gone:
        out.print(gone, style="yellow", markup=False, soft_wrap=True)
    elif code != ExitCode.DIRTY:
        raise error
    return code
