"""`gameday digest`, `index` and `prune`: everything about a whole folder of reports. No cluster is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.plain_file import not_written
from gameday.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.runs.catalog import RunCatalog
    from gameday.runs.retention import RetentionDecision

Reports = Annotated[Path, typer.Argument(help="Folder that holds the folders of the runs.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, digest, "gameday digest", "gameday digest reports --days 7", panel=Panel.AFTER)
    add_command(app, index, "gameday index", panel=Panel.AFTER)
    add_command(
        app,
        prune,
        "gameday prune --keep 20 --days 90",
        "gameday prune --keep 20 --days 90 --delete",
        panel=Panel.AFTER,
    )


def digest(
    reports: Reports = Path("reports"),
    days: Annotated[int, typer.Option(min=1, max=3660, help="Length of the window, which ends now.")] = 7,
) -> int:
    """Write one page about a week: verdicts, regressions, coverage, open actions. Also renews the index.

    Exit code: the worst of the runs that ended in the window; 2 when there was none, and none is running either.
    """
    from datetime import UTC, datetime, timedelta

    from gameday.checks.outcome import worst_exit_code
    from gameday.faults.registry import parameter_models
    from gameday.plan.catalogue import load_shipped
    from gameday.runs.digest import digest_of, render_digest
    from gameday.runs.index import render_index

    catalog, now = _catalog(reports), datetime.now(UTC)
    plans = [loaded.plan for loaded in load_shipped(parameter_models())]
    made = digest_of(catalog, plans, now - timedelta(days=days), now)
    try:
        rendered = render_digest(reports, made, now)
        unwritten = rendered.unwritten
        render_index(reports, catalog, now)
    except OSError as error:
        unwritten = not_written(error, reports)
    if unwritten:
        raise CommandError(f"the digest cannot be written: {unwritten}")
    out = console()
    out.print(printable(made.headline), style="bold", soft_wrap=True)
    for one in made.running:
        out.print(f"still running: {printable(one.words)}", soft_wrap=True)
    for mark in made.unclean:
        out.print(f"cluster {mark.cleanliness}: {printable(mark.run_id)}", style="red", soft_wrap=True)
    for mark in made.unclean_before:
        out.print(f"never proved clean, before this window: {printable(mark.run_id)}", soft_wrap=True)
    for problem in made.problems:
        out.print(f"could not be read: {printable(problem)}", style="yellow", soft_wrap=True)
    out.print(f"digest: {rendered.html}", soft_wrap=True)
    window = [run.summary for run in catalog.runs if run.summary.started >= now - timedelta(days=days)]
    if made.running and not window:
        return ExitCode.PASSED
    return worst_exit_code((run.outcome, run.cleanliness) for run in window)


def index(reports: Reports = Path("reports")) -> int:
    """Write one page of all runs, comparisons and post-mortems, with search and filter."""
    from datetime import UTC, datetime

    from gameday.runs.index import render_index

    catalog = _catalog(reports)
    try:
        path = render_index(reports, catalog, datetime.now(UTC))
    except OSError as error:
        raise CommandError(f"the index cannot be written: {not_written(error, reports)}") from None
    console().print(f"{len(catalog.runs)} runs, {len(catalog.incidents)} post-mortems: {path}", soft_wrap=True)
    return ExitCode.PASSED


def prune(
    reports: Reports = Path("reports"),
    keep: Annotated[int, typer.Option(min=1, help="Keep this many of the newest runs of each plan.")] = 20,
    days: Annotated[int, typer.Option(min=0, help="Keep runs younger than this many days.")] = 90,
    delete: Annotated[bool, typer.Option("--delete", help="Delete. Without it, only list what would go.")] = False,
) -> int:
    """Delete old runs, comparisons and fleet runs. Evidence stays.

    Evidence is the runs of a cluster that was left unclean, open histories, and post-mortems. Only lists what would go
    unless --delete is given. Pages that stay lose their links to what is gone.
    """
    from datetime import UTC, datetime, timedelta

    from gameday.runs.retention import decide_retention, without_dead_links

    now = datetime.now(UTC)
    catalog = _catalog(reports)
    decisions = decide_retention(catalog, keep, timedelta(days=days), now)
    out = console()
    words = [_pruned(out, decision, delete=delete) for decision in decisions]
    for one in catalog.running:
        out.print(f"stays    {printable(one.run_id)}: it is still running", soft_wrap=True)
    for problem in catalog.unreadable:
        out.print(f"stays    {printable(problem)}", soft_wrap=True)
    word = "deleted" if delete else "would go"
    more = "" if delete else "; --delete does it"
    out.print(f"{words.count(word)} of {len(words)} runs, comparisons and fleet runs {word}{more}")
    if delete:
        try:
            unwritten = without_dead_links(reports, now)
        except OSError as error:
            unwritten = not_written(error, reports)
        if unwritten:
            raise CommandError(f"the pages still link what is gone: {unwritten}")
    if failed := words.count("failed"):
        raise CommandError(f"{failed} could not be deleted, or not wholly: mend what is named above, and prune again")
    return ExitCode.PASSED


def _pruned(out: Console, decision: RetentionDecision, *, delete: bool) -> str:
    """Delete the folder if that was asked and decided; print and return in a word what happened to it."""
    from gameday.runs.retention import delete_folder

    word, why = ("deleted" if delete else "would go") if decision.deletable else "stays", decision.why
    if word == "deleted" and (problem := delete_folder(decision.folder)):
        word, why = "failed", problem
    out.print(f"{word:8} {printable(decision.folder.name)}: {printable(why)}", soft_wrap=True)
    return word


def _catalog(reports: Path) -> RunCatalog:
    from gameday.runs.catalog import read_catalog

    try:
        return read_catalog(reports)
    except OSError as error:
        raise CommandError(f"{reports}: {error.strerror}; give the folder that the runs' folders stand in") from None
