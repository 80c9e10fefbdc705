"""Parts of `gameday run`, `rehearse` and `report` for a plan with arms, and for the folder of a comparison."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.plain_file import not_written
from gameday.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.arms.page import RenderedComparison
    from gameday.plan.load import LoadedPlan


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
    """Run the comparison in this thread, with a line per event of its game-days beside it."""
    from gameday.arms.record import ARMS_FILE  # noqa: PLC0415 - see the package's docstring
    from gameday.cli.prefect_client import give_events_up_at_once, gone_message  # noqa: PLC0415
    from gameday.cli.season_view import SeasonView  # noqa: PLC0415
    from gameday.flows.arms import comparison  # noqa: PLC0415
    from gameday.run.record import new_run_id  # noqa: PLC0415
    from gameday.season.assignment import comparison_of  # noqa: PLC0415
    from gameday.season.record import SeasonResult  # noqa: PLC0415

    id = f"arms-{new_run_id()}"
    folder = reports / comparison_of(id, loaded.plan)
    result: object
    give_events_up_at_once()
    with SeasonView(reports, id, out, folder):
        try:
            state = comparison(
                plan=plan,
                profile=profile,
                reports=str(reports),
                trigger=trigger,
                comparison_id=id,
                command=command,
                approved_by=approved_by,
                return_state=True,
            )
            result = state.result(raise_on_failure=False)
        except Exception as error:  # an error of Prefect's own, for example; the histories hold the results
            result = error
    if not (folder / ARMS_FILE).is_file():
        if isinstance(result, BaseException):
            gone = gone_message(result)
            raise CommandError(gone, ExitCode.REFUSED) if gone else result
        assert isinstance(result, SeasonResult)
        raise CommandError(result.why, ExitCode(result.exit_code))
    code = print_comparison(out, draw(folder))
    if isinstance(result, BaseException):
        gone = gone_message(result)
        if not gone and code != ExitCode.DIRTY:
            raise result
        out.print(gone or f"{type(result).__name__}: {result}", style="yellow", markup=False, soft_wrap=True)
    return code


def draw(folder: Path, *, redact: bool = False) -> RenderedComparison:
    """Render a comparison's page, or the one without the site's names; raises CommandError if it cannot."""
    from gameday.arms.page import render_comparison  # noqa: PLC0415

    try:
        return render_comparison(folder, datetime.now(UTC), redact=redact)
    except OSError as error:
        raise CommandError(f"the comparison's page cannot be drawn: {not_written(error, folder)}") from None
    except ValueError:
        raise CommandError(f"{folder} is no comparison's folder: its arms.json is damaged") from None


def print_comparison(out: Console, rendered: RenderedComparison) -> int:
    """Print each arm's game-days and the comparison's outcome; returns its exit code."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("arm", "repetition", "outcome", "why"):
        table.add_column(column, overflow="fold")
    for arm in rendered.comparison.arms:
        for run in arm.runs:
            style = {"passed": "green", "failed": "red"}.get(str(run.outcome), "yellow")
            outcome = Text(str(run.outcome or "not played"), style=style)
            table.add_row(Text(arm.arm.name), str(run.repetition), outcome, Text(printable(run.why)))
    out.print(table)
    result = rendered.result
    style = "green" if result.exit_code == 0 else "red" if result.exit_code in (1, 4) else "yellow"
    head = (f"{ExitCode(result.exit_code).name}  ", f"bold {style}")
    out.print(Text.assemble(head, Text(printable(result.why))), soft_wrap=True)
    out.print(rendered.unwritten or f"comparison: {rendered.html}", soft_wrap=True, highlight=False)
    return result.exit_code
