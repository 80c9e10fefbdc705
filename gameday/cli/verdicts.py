"""The last output of a run: its verdicts, its outcome and the report's path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gameday.checks.outcome import RunOutcome, RunResult, fold_outcome
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import RunEnded, RunStarted
from gameday.history.journal import History, read_history
from gameday.plain_file import read_plain
from gameday.report.doctors_word import doctors_word
from gameday.report.next_command import next_command
from gameday.report.run_folder import load_run_folder
from gameday.text import printable

_VERDICTS = TypeAdapter(tuple[Verdict, ...])
_NARROW = 90
"""Columns below which four columns of words would fold into ribbons."""
_STYLES = {Status.HELD: "green", Status.BROKEN: "red", Status.UNKNOWN: "yellow", Status.NOT_ASKED: "dim"}


def print_result(console: Console, folder: Path, judged: RunResult | None = None) -> int:
    """Print a rendered run's verdict table, its outcome and its report's path; return its exit code.

    `judged` is the flow's own result, which also knows what could not be written.
    """
    history, verdicts = _judged(folder)
    result = judged or fold_outcome(history, verdicts)
    if result.outcome is not RunOutcome.REFUSED:  # nothing was measured, so every row would say the same
        console.print(_table(verdicts, narrow=console.width < _NARROW))
    style = "green" if result.exit_code == 0 else "red" if result.exit_code in (1, 4) else "yellow"
    console.print(
        Text.assemble((result.outcome.upper(), f"bold {style}"), f"  cluster {result.cleanliness}  "),
        Text(printable(result.why)),
        soft_wrap=True,
    )
    if said := doctors_word(history, result.outcome):
        for line in said.lines:
            console.print(Text(printable(f"doctor: {line}")), soft_wrap=True)
    if following := next_command(history.first(RunStarted), result, ended=history.last(RunEnded) is not None):
        console.print(Text(following.why), soft_wrap=True)
        console.print(Text(f"    {printable(following.command)}", style="bold"), soft_wrap=True)
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True, highlight=False)
    return result.exit_code


def _judged(folder: Path) -> tuple[History, tuple[Verdict, ...]]:
    """Return what the report was drawn from. A run without stored verdicts is judged again, which needs pandas."""
    try:
        return read_history(folder / "history.jsonl"), _VERDICTS.validate_json(read_plain(folder / "verdicts.json"))
    except (OSError, ValueError):
        run = load_run_folder(folder)
        return run.history, run.verdicts


def _table(verdicts: Sequence[Verdict], *, narrow: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("verdict", "expectation") if narrow else ("verdict", "expectation", "bound", "measured"):
        table.add_column(column, overflow="fold")
    for verdict in verdicts:
        expectation, bound, measured = (
            Text(printable(cell)) for cell in (verdict.expectation, verdict.bound, verdict.measured)
        )
        status = Text(verdict.status, style=_STYLES[verdict.status])
        why = printable(verdict.why) if verdict.status is not Status.HELD else ""
        if narrow:
            wanted = f"wanted {bound.plain}" if bound.plain else ""
            figures = Text(", ".join(part for part in (measured.plain, wanted) if part), style="dim")
            table.add_row(status, Text("\n").join(cell for cell in (expectation, figures, Text(why)) if cell.plain))
        else:
            table.add_row(status, expectation, bound, measured)
            if why:
                table.add_row("", Text(f"  {why}", style="dim"), "", "")
    return table
