"""The last output of a season: its matrix, its gaps and the page's path."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gameday.exit_codes import ExitCode
from gameday.report.formatting import duration
from gameday.runs.cells import CellState
from gameday.runs.pages import RenderedPage
from gameday.runs.season_page import Coverage
from gameday.text import printable

_STYLES = {
    CellState.SEEN: "green",
    CellState.MISSED: "bold red",
    CellState.UNKNOWN: "yellow",
    CellState.NOT_EXPECTED: "dim",
    CellState.UNEXPECTED: "cyan",
}
_SHORT = {CellState.NOT_EXPECTED: "·"}


def print_coverage(out: Console, rendered: RenderedPage[Coverage]) -> ExitCode:
    """Print the matrix in as many columns as fit, the answer, and the page's path."""
    covered, matrix = rendered.content, rendered.content.matrix
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("fault", *matrix.signals):
        table.add_column(str(column), overflow="fold", justify="left" if column == "fault" else "right")
    for row in matrix.rows:
        found = [row.cell(signal) for signal in matrix.signals]
        cells = [Text(_SHORT.get(cell.state, cell.text), style=_STYLES[cell.state]) for cell in found]
        table.add_row(Text(row.plan), *cells)
    out.print(table)
    for why, names in by_reason((one.why, one.plan) for one in covered.left_out).items():
        out.print(Text(printable(f"not run: {', '.join(names)}: {why}"), style="dim"), soft_wrap=True)
    not_played = [one for one in covered.drawn if not one.played]
    for why, names in by_reason((one.why, f"{one.plan} at {duration(one.at_s)}") for one in not_played).items():
        out.print(Text(printable(f"drawn and not played: {', '.join(names)}: {why}"), style="dim"), soft_wrap=True)
    for dirty in covered.record.dirty_nodes:
        out.print(Text(printable(str(dirty)), style="red"), soft_wrap=True)
    for gap in matrix.gaps:
        said = printable(f"gap: {gap}: {gap.why}")
        out.print(Text(said, style="yellow"), soft_wrap=True)
    out.print(Text(covered.headline, style="bold"), soft_wrap=True)
    out.print(Text(printable(covered.result.why)), soft_wrap=True)
    if covered.drawn_headline:
        out.print(Text(printable(f"{covered.drawn_headline} Again: {covered.record.command}")), soft_wrap=True)
    out.print(rendered.unwritten or f"coverage: {rendered.html}", soft_wrap=True, highlight=False)
    return ExitCode(covered.result.exit_code)


def by_reason(reasons: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names of what was not run, grouped by reason, from pairs of reason and name."""
    found: dict[str, list[str]] = {}
    for why, name in reasons:
        found.setdefault(why, []).append(name)
    return found
