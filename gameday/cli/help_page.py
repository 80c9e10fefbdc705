"""The parts of a help page beside a command's own words: its panel in `gameday --help`, and examples to copy."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import typer


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
        examples: Command lines of it; its help ends with them.
        panel: The panel of the application's help that lists it; None for an application without panels.
        options: Others of `typer.Typer.command`.
    """
    app.command(rich_help_panel=panel, epilog=_epilog(examples), **options)(command)


def _epilog(examples: tuple[str, ...]) -> str:
    title = "Example:" if len(examples) == 1 else "Examples:"
    return "\n".join([title, *(f"  {example}" for example in examples)])
