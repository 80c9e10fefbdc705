"""`gameday reap`: undo what dead runs left in the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.game_day import Profile, warnings_of_publishing
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.cluster.kubernetes import Kubernetes
    from gameday.cluster.profile import ClusterProfile
    from gameday.reaper.reap import ReapResult


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, reap, "gameday reap --profile cluster.yaml", panel=Panel.CLUSTER)


def reap(
    profile: Profile = None,
    wait: Annotated[bool, typer.Option(help="Wait for the lease of a run that stopped renewing it to expire.")] = True,
    reports: Annotated[Path, typer.Option(help="Folder that holds the folders of the dead runs.")] = Path("reports"),
    scheduled: Annotated[
        bool, typer.Option("--scheduled", help="For the CronJob: say in the cluster which packages this reaper has.")
    ] = False,
) -> int:
    """Undo what dead runs left in the cluster, and renew their reports.

    Exit code 0 when all of it is undone, 2 when that is unknown, 4 when something is known to be left.
    """
    from gameday.cluster.kubernetes import Kubernetes
    from gameday.cluster.profile import load_profile
    from gameday.errors import AdapterError
    from gameday.reaper.packages import announce_packages

    try:
        kubernetes = Kubernetes(load_profile(profile))
        code = _reap(console(), kubernetes, wait, reports)
        if scheduled:
            announce_packages(kubernetes, "cronjob")
        return code
    except AdapterError as error:
        raise CommandError(str(error), ExitCode.UNKNOWN) from None


def _reap(out: Console, kubernetes: Kubernetes, wait: bool, reports: Path) -> int:
    from gameday.reaper.reap import reap as reap_once
    from gameday.values.results import Cleanliness

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
    from gameday.run.record import folder_of_run
    from gameday.runs.run_list import ARMS_FILE

    folders = {run_id: folder_of_run(reports, run_id) for run_id in result.changed}
    compared = {run_id for run_id, folder in folders.items() if (folder / ARMS_FILE).is_file()}
    here = compared | {run_id for run_id, folder in folders.items() if (folder / "history.jsonl").is_file()}
    if here:  # the CronJob's pod has neither reports nor Prefect's home
        from gameday.cli.prefect_client import set_defaults

        set_defaults()
        from gameday.tasks.reaped_runs import report_reaped

        with warnings_of_publishing(out):
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
