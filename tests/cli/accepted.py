"""The command line's own option parser, asked whether it takes a command that a page or an example shows."""

from __future__ import annotations

import shlex
from typing import Any

import typer

from gameday.cli import build_app

GAMEDAY: Any = typer.main.get_command(build_app())


def accept(line: str) -> str:
    """Return the command's name; a line that the parser refuses raises its error. Nothing is run."""
    group, arguments = GAMEDAY, shlex.split(line)
    assert arguments.pop(0) == "gameday"
    context: Any = group.make_context("gameday", list(arguments))
    name = ""
    while hasattr(group, "commands") and arguments:
        name, group, arguments = group.resolve_command(context, arguments)
        context = group.make_context(name, list(arguments), parent=context)
    assert not hasattr(group, "commands")
    return name
