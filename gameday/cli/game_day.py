"""`gameday run`: a game-day on the cluster that a profile describes; and what all commands that play plans share."""

from __future__ import annotations

import logging
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.completion import complete_plan
from gameday.cli.console import console
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.plain_file import not_written

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.plan.load import LoadedPlan
    from gameday.plan.models import Plan

DEFAULT_PLAN = "gpu-fell-off-the-bus"

Profile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|block:NAME",
        help="Cluster profile, a file or a block. Without one, the GAMEDAY_* variables of the environment count.",
    ),
]
Arm = Annotated[str | None, typer.Option(help="Play only this arm of a plan that has arms, as one game-day.")]
Reports = Annotated[Path, typer.Option(help="Folder for the runs. Each run gets a folder of its own in it.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        run,
        "gameday run gpu-fell-off-the-bus --profile cluster.yaml --dry-run",
        "gameday run gpu-fell-off-the-bus --profile cluster.yaml",
        panel=Panel.CLUSTER,
    )


def run(
    plan: Annotated[str, typer.Argument(autocompletion=complete_plan, help="A shipped plan's name, or a plan file.")],
    profile: Profile = None,
    reports: Reports = Path("reports"),
    approved_by: Annotated[
        str | None, typer.Option(help="Your name. Approves the run if the plan or the cluster asks for approval.")
    ] = None,
    arm: Arm = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print as YAML what the run would do, and change nothing.")
    ] = False,
) -> int:
    """Run a game-day on a real cluster or on a running rehearsal. A plan with arms plays all of its arms."""
    from gameday.cli.dry_run import dry_run as print_dry_run
    from gameday.cli.prefect_client import prefect_server, set_defaults
    from gameday.cluster.profile import load_profile

    set_defaults()
    cluster = load_profile(profile)
    loaded = checked_plan(plan, cluster.detector_profiles, cluster.detector)
    if arm:
        loaded = loaded.of_arm(arm)
    if dry_run:
        return print_dry_run(loaded.played, cluster)
    check_reports(reports)
    _check_approval(loaded.plan.approval.required or cluster.approval.required, approved_by)
    command = ["gameday", "run", plan, *(["--arm", arm] if arm else [])]
    command += ["--profile", profile] if profile else []
    out = console()
    with prefect_server(out):
        return play(out, loaded, plan, profile, reports, "manual", shlex.join(command), approved_by)


def _check_approval(needed: bool, approved_by: str | None) -> None:
    """Refuse a run that needs an approval nobody can give: a temporary Prefect server has no page to answer on."""
    from prefect.settings import PREFECT_API_URL

    if approved_by is not None and not approved_by.strip():
        raise CommandError("--approved-by needs the name of the person who says yes")
    if needed and not approved_by and not PREFECT_API_URL.value():
        raise CommandError(
            "this game-day needs somebody's approval: give --approved-by NAME, or set PREFECT_API_URL to a server "
            "with a UI in which somebody can answer",
            ExitCode.REFUSED,
        )


def play(
    out: Console,
    loaded: LoadedPlan,
    plan: str,
    profile: str | None,
    reports: Path,
    trigger: str,
    command: str,
    approved_by: str | None = None,
) -> int:
    """Run the flow in this thread with the live view beside it; print verdicts and the report's path.

    `loaded` is the plan to play, or one arm of it. A plan that has arms is played as a comparison.
    """
    from gameday.checks.outcome import RunOutcome, RunResult
    from gameday.cli.live import LiveView
    from gameday.cli.prefect_client import give_events_up_at_once
    from gameday.cli.verdicts import print_result
    from gameday.flows.choices import GivenPlan
    from gameday.flows.game_day import game_day
    from gameday.run.record import new_run_id

    if loaded.arms:
        from gameday.cli.arms import play_arms

        with warnings_of_publishing(out):
            return play_arms(out, loaded, plan, profile, reports, trigger, command, approved_by)
    run_id = new_run_id()
    folder = reports / run_id
    result: object
    give_events_up_at_once()
    with warnings_of_publishing(out):
        with LiveView(folder / "history.jsonl", out):
            try:
                state = game_day(
                    plan=plan,
                    profile=profile,
                    reports=str(reports),
                    trigger=trigger,
                    run_id=run_id,
                    command=command,
                    approved_by=approved_by,
                    given=GivenPlan(loaded),
                    return_state=True,
                )
                result = state.result(raise_on_failure=False)
            # An error of Prefect's own, or a Ctrl-C while it still tries to reach a server that is gone. The run's
            # history holds its results.
            except (Exception, KeyboardInterrupt) as error:
                result = error
        if isinstance(result, Exception):
            return _after(result, out, folder)
        judged = result if isinstance(result, RunResult) else None
        if judged.has_report if judged else (folder / "report.html").exists():
            return print_result(out, folder, judged)
        if isinstance(result, BaseException):
            raise result
        assert judged
        ended = "" if judged.outcome is RunOutcome.REFUSED else f"{judged.outcome}, cluster {judged.cleanliness}: "
        raise CommandError(f"{ended}{judged.why}", ExitCode(judged.exit_code))


def _after(error: Exception, out: Console, folder: Path) -> int:
    """Report what was done before `error`; raise it unless only Prefect's server is gone."""
    from datetime import UTC, datetime

    from gameday.cli.prefect_client import gone_message
    from gameday.cli.verdicts import print_result
    from gameday.runs.run_row import render_run

    prefect = gone_message(error)
    if not (folder / "history.jsonl").is_file():
        if prefect:
            raise CommandError(prefect, ExitCode.REFUSED) from None
        raise error
    render_run(folder, datetime.now(UTC))
    code = print_result(out, folder)
    if not prefect and code != ExitCode.DIRTY:
        raise error
    out.print(prefect or f"{type(error).__name__}: {error}", style="yellow", soft_wrap=True)
    return code


@contextmanager
def warnings_of_publishing(out: Console) -> Iterator[None]:
    """Print the warnings of publishing after the output of the block."""
    from gameday.tasks.publish import OUTSIDE_PREFECT
    from gameday.text import printable

    unprinted = MemoryHandler(capacity=100, flushLevel=logging.CRITICAL + 1, flushOnClose=False)
    OUTSIDE_PREFECT.addHandler(unprinted)
    try:
        yield
    finally:
        OUTSIDE_PREFECT.removeHandler(unprinted)
    for record in unprinted.buffer:
        out.print(printable(record.getMessage()), style="yellow", soft_wrap=True)


def check_plan(plan: str, detector_profiles: Sequence[Path] = ()) -> Plan:
    """Refuse a bad plan before anything is started; raises DocumentError."""
    return checked_plan(plan, detector_profiles).plan


def checked_plan(plan: str, detector_profiles: Sequence[Path] = (), watching: str | None = None) -> LoadedPlan:
    """Return the plan with its file's bytes and its warnings about the detector that watches the cluster.

    Raises DocumentError.
    """
    return complete(read_plan(plan), detector_profiles, watching)


def read_plan(plan: str) -> LoadedPlan:
    """Return the plan as its file has it; raises DocumentError."""
    from gameday.faults.registry import parameter_models
    from gameday.plan.catalogue import find_plan
    from gameday.plan.load import load_plan
    from gameday.remediations.registry import known_remediations

    return load_plan(find_plan(plan), parameter_models(), known_remediations())


def complete(loaded: LoadedPlan, detector_profiles: Sequence[Path], watching: str | None) -> LoadedPlan:
    """Complete a plan that has been read, and refuse checks that nobody has; raises DocumentError."""
    from gameday.detectors.resolve import completed

    whole = completed(loaded, detector_profiles, watching)
    for one in (whole, *whole.scales.values()):
        if one.arms:  # only they name checks, which take half a second to load
            from gameday.runs.arm_checks import refuse_unknown_checks

            refuse_unknown_checks(one)
    return whole


def check_reports(reports: Path) -> None:
    """Refuse a run that could not write its history."""
    from gameday.history.durable import RESERVE_BYTES
    from gameday.history.room import room_in

    try:
        reports.mkdir(parents=True, exist_ok=True)
        room_in(reports).require()
        with tempfile.TemporaryFile(dir=reports) as probe:  # a user's quota shows only like this
            probe.write(b"\0" * RESERVE_BYTES)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        message = f"the report folder cannot be written: {not_written(error, reports)}; --reports names another"
        raise CommandError(message, ExitCode.REFUSED) from None
