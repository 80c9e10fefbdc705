"""Parts of `gameday run`, `rehearse` and `report` for a plan with arms, and for the folder of a comparison."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.plain_file import not_written
from gameday.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.plan.load import LoadedPlan
    from gameday.runs.comparison import Comparison
    from gameday.runs.pages import RenderedPage


def play_arms(
    out: Console,
    loaded: LoadedPlan,
    plan: str,
    profile: str | None,
    reports: Path,
    trigger: str,
    command: str,
    approved_by: str | None = None,
) -> int:
    """Run the comparison in this thread, and print its findings; raises as `play`."""
    from gameday.cli.play_season import play
    from gameday.flows.arms import comparison
    from gameday.flows.choices import GivenPlan
    from gameday.run.record import new_run_id
    from gameday.runs.assignment import comparison_of
    from gameday.runs.run_list import ARMS_FILE

    id = f"arms-{new_run_id()}"
    played = partial(
        comparison,
        plan=plan,
        profile=profile,
        reports=str(reports),
        trigger=trigger,
        comparison_id=id,
        command=command,
        approved_by=approved_by,
        given=GivenPlan(loaded),
    )
    record = reports / comparison_of(id, loaded.plan) / ARMS_FILE
    return play(out, id, record, played, lambda out, folder: print_comparison(out, draw(folder)))


def draw(folder: Path, *, redact: bool = False) -> RenderedPage[Comparison]:
    """Render a comparison's page, or the one without the site's names; raises CommandError if it cannot."""
    from gameday.runs.comparison_page import render_comparison

    try:
        return render_comparison(folder, datetime.now(UTC), redact=redact)
    except OSError as error:
        raise CommandError(f"the comparison's page cannot be drawn: {not_written(error, folder)}") from None
    except ValueError:
        raise CommandError(f"{folder} is no comparison's folder: its arms.json is damaged") from None


def print_comparison(out: Console, rendered: RenderedPage[Comparison]) -> ExitCode:
    """Print each arm's game-days and the comparison's outcome; returns its exit code."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("arm", "repetition", "outcome", "why"):
        table.add_column(column, overflow="fold")
    for arm in rendered.content.arms:
        for run in arm.runs:
            style = {"passed": "green", "failed": "red"}.get(str(run.outcome), "yellow")
            outcome = Text(str(run.outcome or "not played"), style=style)
            table.add_row(Text(arm.arm.name), str(run.repetition), outcome, Text(printable(run.why)))
    out.print(table)
    result = rendered.content.result
    style = "green" if result.exit_code == 0 else "red" if result.exit_code in (1, 4) else "yellow"
    head = (f"{ExitCode(result.exit_code).name}  ", f"bold {style}")
    out.print(Text.assemble(head, Text(printable(result.why))), soft_wrap=True)
    out.print(rendered.unwritten or f"comparison: {rendered.html}", soft_wrap=True, highlight=False)
    return ExitCode(result.exit_code)
