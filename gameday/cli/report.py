"""`gameday report`: the report of a run again from its folder, or two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.plain_file import not_written

if TYPE_CHECKING:
    from datetime import datetime

    from gameday.report.render import Rendered


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        report,
        "gameday report reports/20260303-090000",
        "gameday report --compare reports/20260303-090000 reports/20260310-090000",
        panel=Panel.AFTER,
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
    from datetime import UTC, datetime

    from gameday.report.notes import write_form
    from gameday.runs.run_row import render_run

    if (folder / "arms.json").is_file():
        from gameday.cli.arms import draw, print_comparison

        return print_comparison(console(), draw(folder, redact=redact))
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
    """Raise CommandError for a run that is not over: what is said of it now would be read later as its end."""
    from gameday.checks.outcome import still_running
    from gameday.history.journal import read_history
    from gameday.history.written_now import is_written_now

    path = folder / "history.jsonl"
    if is_written_now(path) and (history := read_history(path)).is_running:
        said = still_running(history)
        raise CommandError(f"{folder.name}: {said} Its report is drawn when it ends: `gameday index` lists it.")


def _compare(first: Path, second: Path) -> int:
    from datetime import UTC, datetime

    from gameday.errors import RefusedError
    from gameday.report.side_by_side import render_side_by_side

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
    """Render a run without the site's names; those of a comparison have the same neutral names."""
    from gameday.report.render import render
    from gameday.runs.comparison_page import cleaner_of_member

    try:
        clean = cleaner_of_member(folder)
    except ValueError:
        raise CommandError(f"the arms.json beside {folder} is damaged: move the folder elsewhere first") from None
    return render(folder, now, redact=True, clean=clean)
