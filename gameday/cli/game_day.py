"""`gameday run`, `report` and `reap`: a game-day on the cluster that a profile describes, and what it left."""

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
    from datetime import datetime

    from rich.console import Console

    from gameday.cluster.kubernetes import Kubernetes
    from gameday.cluster.profile import ClusterProfile
    from gameday.plan.load import LoadedPlan
    from gameday.plan.models import Plan
    from gameday.reaper.reap import ReapResult
    from gameday.report.render import Rendered

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
    """Add the commands for a real cluster, and for what is left of a run."""
    add_command(
        app,
        run,
        "gameday run gpu-fell-off-the-bus --profile cluster.yaml --dry-run",
        "gameday run gpu-fell-off-the-bus --profile cluster.yaml",
        panel=Panel.CLUSTER,
    )
    add_command(
        app,
        report,
        "gameday report reports/20260303-090000",
        "gameday report --compare reports/20260303-090000 reports/20260310-090000",
        panel=Panel.AFTER,
    )
    add_command(app, reap, "gameday reap --profile cluster.yaml", panel=Panel.CLUSTER)


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
    from gameday.cli.dry_run import dry_run as print_dry_run  # noqa: PLC0415
    from gameday.cli.prefect_client import prefect_server, set_defaults  # noqa: PLC0415
    from gameday.cluster.profile import load_profile  # noqa: PLC0415

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
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415

    if approved_by is not None and not approved_by.strip():
        raise CommandError("--approved-by needs the name of the person who says yes")
    if needed and not approved_by and not PREFECT_API_URL.value():
        raise CommandError(
            "this game-day needs somebody's approval: give --approved-by NAME, or set PREFECT_API_URL to a server "
            "with a UI in which somebody can answer",
            ExitCode.REFUSED,
        )


def report(
    folder: Annotated[Path | None, typer.Argument(help="A run's folder, or a comparison's.")] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact", help="Write report-redacted.html, with neutral names for nodes, addresses and the cluster."
        ),
    ] = False,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", help="Folders of two runs of one plan. Writes one page with both side by side."),
    ] = None,
) -> int:
    """Render the report of a run, or the page of a comparison, again from its folder.

    With --redact, the game-days of a comparison are rendered too, with the same neutral names.

    The report shows what people wrote into notes.yaml in the run's folder.

    Exit code: the run's own; with --compare 0.
    """
    if compare:
        if folder or redact:
            raise CommandError("--compare takes the two folders alone: gameday report --compare A B")
        return _compare(*compare)
    if folder is None:
        raise CommandError("give a run's folder: gameday report reports/RUN")
    from datetime import UTC, datetime  # noqa: PLC0415

    from gameday.coverage.run_row import render_run  # noqa: PLC0415
    from gameday.report.notes import write_form  # noqa: PLC0415

    if (folder / "arms.json").is_file():
        from gameday.cli.arms import draw, print_comparison  # noqa: PLC0415

        return print_comparison(console(), draw(folder, redact=redact))
    if (folder / "league.json").is_file():
        again = f"`gameday league --again {folder}` draws its page"
        raise CommandError(f"{folder} is a league's: {again}; give the folder of one of its game-days")
    if not (folder / "history.jsonl").is_file():
        raise CommandError(f"{folder} holds no history.jsonl; give the folder of a run or of a comparison")
    try:
        now = datetime.now(UTC)
        refuse_running(folder)
        rendered = _render_redacted(folder, now) if redact else render_run(folder, now)
        write_form(folder, "gameday report")
    except OSError as error:
        raise CommandError(f"the report cannot be written: {not_written(error, folder)}") from None
    out = console()
    if rendered.run.notes_problem:
        out.print(rendered.run.notes_problem, style="yellow", markup=False, soft_wrap=True)
    out.print(str(rendered.html), soft_wrap=True)
    return rendered.result.exit_code


def refuse_running(folder: Path) -> None:
    """Raise CommandError for a run that is not over, so that nothing about it is later read as its end."""
    from gameday.checks.outcome import still_running  # noqa: PLC0415
    from gameday.history.journal import read_history  # noqa: PLC0415
    from gameday.history.written_now import is_written_now  # noqa: PLC0415

    path = folder / "history.jsonl"
    if is_written_now(path) and (history := read_history(path)).is_running:
        said = still_running(history)
        raise CommandError(f"{folder.name}: {said} Its report is drawn when it ends: `gameday index` lists it.")


def _compare(first: Path, second: Path) -> int:
    from datetime import UTC, datetime  # noqa: PLC0415

    from gameday.errors import RefusedError  # noqa: PLC0415
    from gameday.report.side_by_side import render_side_by_side  # noqa: PLC0415

    for folder in (first, second):
        if not (folder / "history.jsonl").is_file():
            raise CommandError(f"{folder} holds no history.jsonl; give the folders of two runs of the same plan")
    try:
        page = render_side_by_side(first, second, datetime.now(UTC))
    except RefusedError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"the page cannot be written: {not_written(error, first)}") from None
    console().print(str(page), soft_wrap=True)
    return ExitCode.PASSED


def _render_redacted(folder: Path, now: datetime) -> Rendered:
    """Render a run without the site's names. Game-days of one comparison get the same neutral names."""
    from gameday.arms.redact import cleaner_of_member  # noqa: PLC0415
    from gameday.report.render import render  # noqa: PLC0415

    try:
        clean = cleaner_of_member(folder)
    except ValueError:
        raise CommandError(f"the arms.json beside {folder} is damaged: move the folder elsewhere first") from None
    return render(folder, now, redact=True, clean=clean)


def reap(
    profile: Profile = None,
    wait: Annotated[bool, typer.Option(help="Wait for the lease of a run that stopped renewing it to expire.")] = True,
    reports: Annotated[Path, typer.Option(help="Folder that holds the folders of the dead runs.")] = Path("reports"),
) -> int:
    """Undo what dead runs left in the cluster, and renew their reports.

    Exit code 0 when all of it is undone, 2 when that is unknown, 4 when something is known to be left.
    """
    from gameday.cluster.kubernetes import Kubernetes  # noqa: PLC0415
    from gameday.cluster.profile import load_profile  # noqa: PLC0415
    from gameday.errors import AdapterError  # noqa: PLC0415

    try:
        cluster = load_profile(profile)
        return _reap(console(), Kubernetes(cluster), wait, reports)
    except AdapterError as error:
        raise CommandError(str(error), ExitCode.UNKNOWN) from None


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
    from gameday.checks.outcome import RunOutcome, RunResult  # noqa: PLC0415
    from gameday.cli.live import LiveView  # noqa: PLC0415
    from gameday.cli.prefect_client import give_events_up_at_once  # noqa: PLC0415
    from gameday.cli.verdicts import print_result  # noqa: PLC0415
    from gameday.flows.game_day import game_day  # noqa: PLC0415
    from gameday.run.record import new_run_id  # noqa: PLC0415

    if loaded.arms:
        from gameday.cli.arms import play_arms  # noqa: PLC0415

        with _warnings_of_publishing(out):
            return play_arms(out, loaded, plan, profile, reports, trigger, command, approved_by)
    run_id = new_run_id()
    folder = reports / run_id
    result: object
    give_events_up_at_once()
    with _warnings_of_publishing(out):
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
                    arm=loaded.arm.name if loaded.arm else None,
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
    from datetime import UTC, datetime  # noqa: PLC0415

    from gameday.cli.prefect_client import gone_message  # noqa: PLC0415
    from gameday.cli.verdicts import print_result  # noqa: PLC0415
    from gameday.coverage.run_row import render_run  # noqa: PLC0415

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


def _reap(out: Console, kubernetes: Kubernetes, wait: bool, reports: Path) -> int:
    from gameday.reaper.reap import reap as reap_once  # noqa: PLC0415
    from gameday.values.results import Cleanliness  # noqa: PLC0415

    result = reap_once(kubernetes, observe_holder=False)
    if result.alive and wait:
        held = result.alive[0]
        within = f"{held.duration.total_seconds():g} s"
        out.print(f"{held}; watching for {within} whether it is renewed (--no-wait does not)", soft_wrap=True)
        result = reap_once(kubernetes)
    for one in result.reaped:
        out.print(one.describe(), soft_wrap=True)
    for part in result.unreadable:
        look = f"kubectl -n {kubernetes.profile.namespace} get configmap {part.config_map} -o yaml"
        message = f"cannot be undone, and is kept: {part}; see {look}, undo it by hand, then delete that ConfigMap"
        out.print(message, style="yellow", soft_wrap=True)
    for held in result.alive:
        lives = "it lives, and cleans up after itself" if wait else "whether it lives was not watched"
        out.print(f"{held}: {lives}", soft_wrap=True)
    if not (result.reaped or result.alive or result.unreadable):
        out.print("nothing to reap")
    if result.changed:
        _renew_reports(out, kubernetes.profile, result, reports)
    if any(one.cleanliness is Cleanliness.DIRTY for one in result.reaped):
        return ExitCode.DIRTY
    return ExitCode.PASSED if result.is_clean else ExitCode.UNKNOWN


def _renew_reports(out: Console, profile: ClusterProfile, result: ReapResult, reports: Path) -> None:
    from gameday.arms.record import ARMS_FILE  # noqa: PLC0415
    from gameday.run.record import folder_of_run  # noqa: PLC0415

    folders = {run_id: folder_of_run(reports, run_id) for run_id in result.changed}
    compared = {run_id for run_id, folder in folders.items() if (folder / ARMS_FILE).is_file()}
    here = compared | {run_id for run_id, folder in folders.items() if (folder / "history.jsonl").is_file()}
    if here:  # the CronJob's pod has neither reports nor Prefect's home
        from gameday.cli.prefect_client import set_defaults  # noqa: PLC0415

        set_defaults()
        from gameday.tasks.reaped_runs import report_reaped  # noqa: PLC0415

        with _warnings_of_publishing(out):
            report_reaped(profile, result, reports)
    for run_id in result.changed:
        if run_id not in here:
            message = (
                f"run {run_id} has no history in {reports}, and its report was not renewed; --reports names the folder"
            )
            out.print(message, style="yellow", soft_wrap=True)
        else:
            page = "comparison.html" if run_id in compared else "report.html"
            out.print(f"report: {folders[run_id] / page}", soft_wrap=True)


@contextmanager
def _warnings_of_publishing(out: Console) -> Iterator[None]:
    """Print the warnings of publishing after the output of the block."""
    from gameday.tasks.publish import OUTSIDE_PREFECT  # noqa: PLC0415
    from gameday.text import printable  # noqa: PLC0415

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
    from gameday.detectors.resolve import load_complete_plan  # noqa: PLC0415
    from gameday.plan.catalogue import find_plan  # noqa: PLC0415
    from gameday.season.arm_checks import refuse_unknown_checks  # noqa: PLC0415

    loaded = load_complete_plan(find_plan(plan), detector_profiles, watching)
    if loaded.arms:  # only they name checks, which take half a second to load
        refuse_unknown_checks(loaded, find_plan(plan))
    return loaded


def check_reports(reports: Path) -> None:
    """Refuse a run that could not write its history."""
    from gameday.history.durable import RESERVE_BYTES  # noqa: PLC0415
    from gameday.history.room import room_in  # noqa: PLC0415

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
