"""The console of commands that talk to a cluster: for a terminal, a pipe, and a reader that has left."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from gameday.text import printable_lines

_PIPE_WIDTH = 160
"""Width for a pipe, which has none: wide enough that tables fold little."""


class GameDayConsole(Console):
    """A console that outlives its reader, because the undo and the exit code matter more than the output.

    Text that comes from a cluster is printed as plain text: an escape sequence in it moves no cursor and renames no
    window.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                yield segment._replace(text=printable_lines(segment.text))

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # The interpreter flushes stdout once more at its end, and would complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console() -> Console:
    """Return the console for stdout, which interprets no markup and highlights nothing."""
    made = GameDayConsole(highlight=False, markup=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = _PIPE_WIDTH
    return made
