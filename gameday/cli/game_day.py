"""`gameday run`, `report` and `reap`: a game-day on whatever cluster a profile describes, and what is left of it."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.exit_codes import CommandError, ExitCode

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.plan.models import Plan

DEFAULT_PLAN = "gpu-fell-off-the-bus"

# In the words of Prefect 3.8's flow engine and of its temporary server.
_NO_PREFECT = ("Failed to reach API", "connect to ephemeral Prefect API")

Reports = Annotated[Path, typer.Option(help="Folder the run's own folder is made in.")]


def register(app: typer.Typer) -> None:
    """Add the commands that meet a real cluster, or what is left of a run."""
    app.command()(run)
    app.command()(report)
    app.command()(reap)


def run(
    plan: Annotated[str, typer.Argument(help="A shipped plan's name, or a plan file.")],
    profile: Annotated[
        Path | None, typer.Option(help="Cluster profile; without one, GAMEDAY_* of the environment.")
    ] = None,
    reports: Reports = Path("reports"),
) -> int:
    """Run a game-day on a real cluster (or on a running rehearsal), by its profile."""
    from gameday.cluster.profile import ProfileError, load_profile  # noqa: PLC0415
    from gameday.rehearsal.prefect_server import QUIET  # noqa: PLC0415

    check_plan(plan)
    check_reports(reports)
    try:
        load_profile(profile)
    except ProfileError as error:
        raise CommandError(str(error)) from None
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    command = ["gameday", "run", plan, *(["--profile", str(profile)] if profile else [])]
    return play(console(), plan, profile, reports, "manual", shlex.join(command))


def report(folder: Annotated[Path, typer.Argument(help="A run's folder.")]) -> int:
    """Render a run's report again, from its folder alone. Exit code: the run's own."""
    from datetime import UTC, datetime  # noqa: PLC0415

    from gameday.report.render import render  # noqa: PLC0415

    if not (folder / "history.jsonl").is_file():
        raise CommandError(f"{folder} holds no history.jsonl; give the folder of a run")
    try:
        rendered = render(folder, datetime.now(UTC))
    except OSError as error:
        raise CommandError(f"the report cannot be written: {error.filename}: {error.strerror}") from None
    console().print(str(rendered.html), soft_wrap=True)
    return rendered.result.exit_code


def reap(
    profile: Annotated[
        Path | None, typer.Option(help="Cluster profile; without one, GAMEDAY_* of the environment.")
    ] = None,
    wait: Annotated[
        bool, typer.Option(help="Wait until a run that stopped renewing its lease may be taken for dead.")
    ] = True,
) -> int:
    """Undo what dead runs left in the cluster."""
    from gameday.cluster.http import AdapterError  # noqa: PLC0415
    from gameday.cluster.kubernetes import Kubernetes  # noqa: PLC0415
    from gameday.cluster.profile import ProfileError, load_profile  # noqa: PLC0415

    try:
        kubernetes = Kubernetes(load_profile(profile))
        return _reap(console(), kubernetes, wait)
    except ProfileError as error:
        raise CommandError(str(error)) from None
    except AdapterError as error:
        raise CommandError(str(error), ExitCode.UNKNOWN) from None


def play(out: Console, plan: str, profile: Path | None, reports: Path, trigger: str, command: str) -> int:
    """Run the flow in this thread with the live view beside it; print verdicts and the report's path."""
    from flows.game_day import game_day  # noqa: PLC0415
    from gameday.checks.outcome import RunResult  # noqa: PLC0415
    from gameday.cli.live import LiveView  # noqa: PLC0415
    from gameday.cli.verdicts import print_result  # noqa: PLC0415
    from gameday.lifecycle import new_run_id  # noqa: PLC0415

    run_id = new_run_id()
    folder = reports / run_id
    result: object
    with LiveView(folder / "history.jsonl", out):
        try:
            state = game_day(
                plan=plan,
                profile=str(profile) if profile else None,
                reports=str(reports),
                trigger=trigger,
                run_id=run_id,
                command=command,
                return_state=True,
            )
            result = state.result(raise_on_failure=False)
        except Exception as error:  # Prefect's own, say; what the run did stands in its history
            result = error
    if isinstance(result, Exception):
        return _after(result, out, folder)
    if isinstance(result, BaseException):
        raise result
    assert isinstance(result, RunResult)
    if not (folder / "report.html").exists():
        raise CommandError(result.why, ExitCode(result.exit_code))
    return print_result(out, folder)


def _after(error: Exception, out: Console, folder: Path) -> int:
    """Report what was done before `error`; raises it unless it is only Prefect's server that is gone."""
    from datetime import UTC, datetime  # noqa: PLC0415

    from gameday.cli.verdicts import print_result  # noqa: PLC0415
    from gameday.report.render import render  # noqa: PLC0415

    prefect = _prefect_is_gone(error)
    if not (folder / "history.jsonl").is_file():
        if prefect:
            raise CommandError(prefect, ExitCode.REFUSED) from None
        raise error
    render(folder, datetime.now(UTC))
    code = print_result(out, folder)
    if not prefect and code != ExitCode.DIRTY:
        raise error
    out.print(prefect or f"{type(error).__name__}: {error}", style="yellow", soft_wrap=True)
    return code


def _prefect_is_gone(error: Exception) -> str:
    """What to tell a person when it was Prefect's server that could not be reached; empty for everything else."""
    import httpx  # noqa: PLC0415
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415

    if not isinstance(error, httpx.TransportError) and not any(sign in str(error) for sign in _NO_PREFECT):
        return ""
    where = PREFECT_API_URL.value() or "of this machine"
    return f"the Prefect server {where} does not answer; start it, or unset PREFECT_API_URL for one that lasts a run"


def _reap(out: Console, kubernetes: object, wait: bool) -> int:
    import time  # noqa: PLC0415

    from gameday.ledger.reaper import reap as reap_once  # noqa: PLC0415
    from gameday.ledger.reaper import when  # noqa: PLC0415

    result = reap_once(kubernetes)  # type: ignore[arg-type]
    if result.alive and wait:
        held = result.alive[0]
        out.print(f"{held}; waiting {when(held):.0f} s until it expires (--no-wait does not)")
        time.sleep(when(held) + 0.5)
        result = reap_once(kubernetes)  # type: ignore[arg-type]
    for one in result.reaped:
        out.print(f"{one.run_id}  {one.entry.act}: {one.cleanliness}", soft_wrap=True)
    for key in result.unreadable:
        out.print(f"{key} in the ledger cannot be read; look at it with kubectl", style="yellow")
    for held in result.alive:
        out.print(f"{held}: it lives, and cleans up after itself")
    if not (result.reaped or result.alive or result.unreadable):
        out.print("nothing to reap")
    return ExitCode.HELD if result.clean else ExitCode.DIRTY


def check_plan(plan: str) -> Plan:
    """Refuse a bad plan before anything is started; raises PlanError."""
    from gameday.faults.registry import parameter_models  # noqa: PLC0415
    from gameday.plan.catalogue import find_plan  # noqa: PLC0415
    from gameday.plan.load import load_plan  # noqa: PLC0415

    return load_plan(find_plan(plan), parameter_models()).plan


def check_reports(reports: Path) -> None:
    """A run whose history cannot be written must not begin."""
    try:
        reports.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=reports, prefix=".probe-") as probe:
            probe.write(b"\0" * 65536)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise CommandError(
            f"the report folder {reports} cannot be written: {error.strerror}; make room, or name another: --reports",
            ExitCode.REFUSED,
        ) from None
