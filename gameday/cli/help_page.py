"""The parts of a help page that are not a command's own text: its panel in `gameday --help`, and examples to copy."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from rich.table import Table

_Row = tuple[str, str]
"""A row about an option or argument: its type, and its text with default and bounds."""
_NAMES_SHARE = 0.45
"""Largest share of the width for the names: at 80 columns the longest name fits, and half a line is left for text."""


class Panel(StrEnum):
    """The panels of `gameday --help`, in the order in which a new user needs them."""

    START = "Start here"
    CLUSTER = "On a cluster"
    AFTER = "After a run"
    DETECTORS = "Measure what detectors notice"
    VIRTUAL = "Virtual clusters to keep running"


def add_command(
    app: typer.Typer, command: Callable[..., Any], *examples: str, panel: Panel | None = None, **options: Any
) -> None:
    """Add a command.

    Args:
        app: The application that it is added to.
        command: The function.
        examples: Command lines that its help ends with.
        panel: The panel of the application's help that lists it; None for an application without panels.
        options: Further options of `typer.Typer.command`.
    """
    app.command(cls=_Command, rich_help_panel=panel, epilog=_epilog(examples), **options)(command)


def _epilog(examples: tuple[str, ...]) -> str:
    title = "Example:" if len(examples) == 1 else "Examples:"
    return "\n".join([title, *(f"  {example}" for example in examples)])


class HelpGroup(TyperGroup):
    """A group of commands with help that shows no type beside a flag."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)
        for flag in params:
            if getattr(flag, "is_flag", False):
                flag.metavar = ""
        return params


class _Command(TyperCommand):
    """A command with help that fits the terminal: whole names of options, unbroken paragraphs, examples to copy.

    Typer's own page has six columns, cuts names to fit, and keeps the line ends of docstrings.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from rich.console import Console  # only for help: other commands start without it
        from rich.padding import Padding
        from rich.panel import Panel as Frame

        console = Console(markup=False, highlight=False)
        title, *examples = (self.epilog or "").splitlines()
        words = [self.get_usage(ctx), *_paragraphs(self.help or "")]
        console.print(Padding("\n\n".join(words), 1))
        for name, kind in (("Arguments", "argument"), ("Options", "option")):
            params = [param for param in self.get_params(ctx) if param.param_type_name == kind]
            rows = [row for param in params if (row := param.get_help_record(ctx))]
            if rows:
                console.print(Frame(_table(rows, console.width), title=name, title_align="left", border_style="dim"))
        shown = [title, *(line for example in examples for line in folded(example.strip(), console.width))]
        console.print(Padding("\n".join(shown), 1))


def _paragraphs(docstring: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring, each as one line."""
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        yield " ".join(paragraph.split())


def _table(rows: list[_Row], width: int) -> Table:
    """Return a table that continues a too long name in the next line."""
    from rich.table import Table
    from rich.text import Text

    longest = max(len(names) for names, _ in rows)
    table = Table(box=None, show_header=False, expand=True, pad_edge=False)
    table.add_column(style="bold cyan", overflow="fold", width=min(longest, int(width * _NAMES_SHARE)))
    table.add_column(overflow="fold", ratio=1)
    for names, words in rows:
        table.add_row(Text(names), Text(" ".join(words.split())))
    return table


def folded(example: str, width: int) -> list[str]:
    """Return a command line folded between words, with backslashes, so that a shell still reads it as one."""
    words = re.findall(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""", example)
    glued = " ".join(word.replace(" ", "\0") for word in words)
    lines = textwrap.wrap(glued, width - 6, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    whole = [f"  {line}".replace("\0", " ") for line in lines]
    return [f"{line} \\" for line in whole[:-1]] + whole[-1:]
