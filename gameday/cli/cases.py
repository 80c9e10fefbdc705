"""`gameday cases`: list the labelled cases, and write plans that play them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from gameday.cli.console import console
from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.plain_file import not_written
from gameday.text import printable


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, cases, "gameday cases", "gameday cases --plans case-plans", panel=Panel.DETECTORS)


def cases(
    plans: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder for a plan of each case that has no shipped one.")
    ] = None,
) -> None:
    """List the cases that detectors are judged by: the right answer, and the plan that plays it.

    With --plans it also writes plans for `gameday coverage FOLDER/*.yaml`.
    """
    from gameday.corpus.load import shipped_cases
    from gameday.corpus.plays import plan_of, why_not_played

    out, known = console(), shipped_cases()
    for name, case in known.items():
        played = case.plan or (f"not played: {why}" if (why := why_not_played(case)) else "")
        out.print(f"{case.answer:<6} {name:<36} {played}".rstrip(), markup=False, highlight=False, soft_wrap=True)
    answers = Counter(str(case.answer) for case in known.values())
    out.print(f"{answers.total()} cases: act {answers['act']}, leave {answers['leave']}", style="dim")
    if plans is None:
        return
    texts = {case.name: plan_of(case) for case in known.values() if not case.plan and not why_not_played(case)}
    try:
        plans.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (plans / f"{name}.yaml").write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"the plans cannot be written: {printable(not_written(error, plans))}") from None
    out.print(f"{len(texts)} plans written: {printable(str(plans))}", markup=False, soft_wrap=True)
