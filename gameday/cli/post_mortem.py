"""`gameday post-mortem`: the report of a real incident, from what the cluster's servers remember. Reads only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.game_day import Profile
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.plain_file import not_written
from gameday.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.post_mortem.page import PostMortem


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        post_mortem,
        "gameday post-mortem --node gpu-node-17 --from '2h ago' --to now --profile cluster.yaml",
        panel=Panel.AFTER,
        name="post-mortem",
    )


def post_mortem(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of an incident. Renders it again with the notes that you filled in.")
    ] = None,
    node: Annotated[str | None, typer.Option(help="Node on which it happened, by its name in Kubernetes.")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="Beginning of the window: 2026-03-03T09:00Z, `2h ago`.")
    ] = None,
    end: Annotated[str, typer.Option("--to", help="End of the window, in the same forms, or `now`.")] = "now",
    profile: Profile = None,
    reports: Annotated[
        Path, typer.Option(help="Folder for the incidents. Each gets a folder of its own in it.")
    ] = Path("reports"),
) -> int:
    """Report a real incident from Prometheus, Loki, Alertmanager and Kubernetes; nothing is injected or changed.

    Exit code 0 when the cluster noticed by itself, 1 when it did not, 2 when that is unknown.
    """
    out = console()
    if folder is not None:
        if node or start:
            raise CommandError("give a folder to render again, or --node and --from to collect; not both")
        return _print(out, render_again(folder))
    if node is None or start is None:
        raise CommandError("give --node and --from (and --to), or the folder of an incident that was collected before")
    return _print(out, render_again(_collect(node, start, end, profile, reports)))


def _collect(node: str, start: str, end: str, profile: str | None, reports: Path) -> Path:
    from datetime import UTC, datetime

    from gameday.cli.game_day import check_reports
    from gameday.cluster.profile import load_profile
    from gameday.errors import (
        AdapterError,
        CollectedAlreadyError,
        NothingReadError,
        ProfileError,
        UnknownNodeError,
        WindowError,
    )
    from gameday.post_mortem.collect import collect_incident
    from gameday.post_mortem.incident import command_line
    from gameday.post_mortem.times import parse_window

    try:
        first, last = parse_window(start, end, datetime.now(UTC))
        check_reports(reports)
        command = command_line(node, first, last, profile)
        return collect_incident(load_profile(profile), node, first, last, reports, command)
    except (WindowError, CollectedAlreadyError, UnknownNodeError, ProfileError) as error:
        raise CommandError(str(error)) from None
    except (AdapterError, NothingReadError) as error:
        raise CommandError(printable(str(error)), ExitCode.REFUSED) from None


def render_again(folder: Path) -> PostMortem:
    """Render an incident's folder with the shipped plans and the runs beside it. Raises CommandError."""
    from datetime import UTC, datetime

    from gameday.faults.registry import parameter_models
    from gameday.plan.catalogue import load_shipped
    from gameday.post_mortem.page import render_post_mortem
    from gameday.report.notes import write_form
    from gameday.runs.run_list import list_runs

    try:
        plans = [loaded.plan for loaded in load_shipped(parameter_models())]
        runs = [run.summary for run in list_runs(folder.resolve().parent).runs]
        made = render_post_mortem(folder, plans, runs, datetime.now(UTC))
        write_form(folder, "gameday post-mortem")
    except FileNotFoundError:
        raise CommandError(f"{folder} is not an incident's folder: it has no incident.json") from None
    except OSError as error:
        raise CommandError(f"the post-mortem cannot be written: {not_written(error, folder)}") from None
    except ValueError as error:
        raise CommandError(f"{folder}/incident.json is damaged: {printable(str(error))}") from None
    return made


def _print(out: Console, made: PostMortem) -> int:
    from gameday.report.summary import Noticed

    story = made.story
    for finding in story.findings:
        out.print(f"{finding.status:8} {finding.question} {printable(finding.answer)}", soft_wrap=True)
    for problem in (*story.problems, story.notes_problem):
        if problem:
            out.print(f"could not be read: {printable(problem)}", style="yellow", soft_wrap=True)
    out.print(printable(story.headline), style="bold", soft_wrap=True)
    catcher = story.nearest
    said = f"{catcher.plan}: {catcher.why}" if catcher.plan else catcher.why
    out.print(f"would have caught it: {printable(said)}", soft_wrap=True)
    out.print(f"report: {made.html}", soft_wrap=True)
    out.print(f"wiki:   {made.markdown}", soft_wrap=True)
    out.print(
        f"notes:  {made.html.parent / 'notes.yaml'} (fill in, then: gameday post-mortem {made.html.parent})",
        soft_wrap=True,
    )
    codes = {Noticed.YES: ExitCode.PASSED, Noticed.PARTLY: ExitCode.FAILED, Noticed.NO: ExitCode.FAILED}
    return codes.get(story.noticed, ExitCode.UNKNOWN)
