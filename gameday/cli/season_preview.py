"""`gameday season --random --dry-run`: what would be played, when and where, and what would not be, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from gameday.cli.coverage_table import by_reason
from gameday.cli.play_season import AskedSeason, cluster_profile
from gameday.errors import AdapterError, CommandError, RefusedError
from gameday.exit_codes import ExitCode
from gameday.report.formatting import duration
from gameday.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.runs.preview import SeasonPreview


def print_preview(out: Console, asked: AskedSeason, profile: str | None, command: str, trigger: str) -> ExitCode:
    """Print the draw of a random season, with the arguments of `play_season`; nothing is started.

    Raises:
        CommandError: Nothing can be drawn, or the cluster does not answer.
    """
    from gameday.runs.preview import preview_random_season
    from gameday.runs.timings import usual_durations

    assert asked.random is not None
    try:
        cluster = cluster_profile(profile)
        before = usual_durations(asked.reports, cluster.name)
        seen = preview_random_season(cluster, asked.plans, asked.random, asked.seed, asked.at_once, before)
    except RefusedError as error:
        raise CommandError(f"refused: {error.why}; {error.hint}", ExitCode.REFUSED) from None
    except AdapterError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None
    _print(out, seen)
    out.print(f"seed {asked.seed}; nothing was changed. To play it: {command}", soft_wrap=True)
    return ExitCode.PASSED


def _print(out: Console, seen: SeasonPreview) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("at", justify="right", no_wrap=True)
    for column in ("plan", "nodes"):
        table.add_column(column, overflow="fold")
    for run in seen.runs:
        at = duration(run.drawn.at_s) if run.drawn else ""
        table.add_row(at, Text(printable(run.plan)), Text(printable(", ".join(run.targets))))
    out.print(table)
    for why, names in by_reason((one.why, f"{one.plan} at {duration(one.at_s)}") for one in seen.not_placed).items():
        out.print(Text(printable(f"not played: {', '.join(names)}: {why}")), soft_wrap=True)
    for why, names in by_reason((one.why, one.plan) for one in seen.left_out).items():
        out.print(Text(printable(f"never drawn: {', '.join(names)}: {why}"), style="dim"), soft_wrap=True)
