"""Show a run live, from its history file alone, so that the view is the same for any process's run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gameday.history.background import BackgroundView
from gameday.history.events import Record, StepEnded, StepStarted, WaitStarted
from gameday.history.journal import HistoryTail
from gameday.report.live_lines import TONES, LiveLine, LiveLines, Tone
from gameday.text import printable
from gameday.values.results import Step

_REFRESH_S = 0.2
_STYLES = {
    Tone.PLAIN: "",
    Tone.STRONG: "bold",
    Tone.GOOD: "green",
    Tone.DOUBT: "yellow",
    Tone.BAD: "red",
    Tone.FAINT: "dim",
}


class LiveView(BackgroundView):
    """Follow history.jsonl: a table of the steps on a terminal, a line per event elsewhere."""

    def __init__(self, history: Path, console: Console) -> None:
        super().__init__()
        self._history = HistoryTail(history)
        self._console = console
        self._started: dict[Step, tuple[Record, StepStarted]] = {}
        self._ended: dict[Step, tuple[Record, StepEnded]] = {}
        self._waiting: tuple[Record, WaitStarted] | None = None
        self._lines = LiveLines()

    def follow(self) -> None:
        if not self._console.is_terminal:
            for _ in self.looks(_REFRESH_S):
                self._read()
            self._print(self._lines.rest())
            return
        with Live(self._table(), console=self._console, auto_refresh=False, transient=False) as live:
            for _ in self.looks(_REFRESH_S):
                self._read()
                live.update(self._table(), refresh=True)
            self._print(self._lines.rest())
            self._waiting = None
            live.update(self._table(), refresh=True)

    def _read(self) -> None:
        for record in self._history.added():
            match record.event:
                case StepStarted() as event:
                    self._started[event.step] = (record, event)
                case StepEnded() as event:
                    self._ended[event.step] = (record, event)
                    self._waiting = None
                case WaitStarted() as event:
                    self._waiting = (record, event)
            self._print(self._lines.added(record))

    def _print(self, lines: Iterable[LiveLine]) -> None:
        for line in lines:
            stamp, words = Text(line.stamp, style="dim"), Text(line.words.text, style=_STYLES[line.words.tone])
            if not self._console.is_terminal:
                self._console.print(stamp + words, soft_wrap=True, highlight=False)
                continue
            row = Table.grid()
            row.add_column(no_wrap=True)
            row.add_column(overflow="fold")
            row.add_row(stamp, words)
            self._console.print(row, highlight=False)

    def _table(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in ("step", "", "elapsed", "waits for", "deadline"):
            table.add_column(
                column,
                header_style="dim",
                justify="right" if column in ("elapsed", "deadline") else "left",
                overflow="fold",
            )
        for step in Step:
            table.add_row(*self._row(step))
        return Group(Text(), table)

    def _row(self, step: Step) -> tuple[RenderableType, ...]:
        started, ended = self._started.get(step), self._ended.get(step)
        if ended:
            seconds = ended[0].monotonic - started[0].monotonic if started else None
            style = _STYLES[TONES[ended[1].outcome]]
            elapsed = f"{seconds:.1f} s" if seconds is not None else ""
            return Text(step), Text(ended[1].outcome, style=style), elapsed, Text(""), Text("")
        if not started:
            return Text(step, style="dim"), "", "", "", ""
        waiting, deadline = Text(""), ""
        if self._waiting and self._waiting[1].step == step:
            record, event = self._waiting
            left_s = event.deadline_s - (time.monotonic() - record.monotonic)
            if left_s > 0:  # a step goes on when one of its waits is over, which nobody notes
                waiting, deadline = Text(printable(event.what)), f"{math.ceil(left_s)} s"
        return (
            Text(step, style="bold"),
            Text("running", style="cyan"),
            f"{time.monotonic() - started[0].monotonic:.1f} s",
            waiting,
            deadline,
        )
