"""`gameday verify`: check a proof's evidence offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gameday.cli.help_page import Panel, add_command
from gameday.exit_codes import ExitCode


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, verify, "gameday verify proof.json --key alice.pub", panel=Panel.AFTER)


def verify(
    file: Annotated[Path, typer.Argument(help="Evidence that `gameday prove --evidence` has written.")],
    key: Annotated[Path | None, typer.Option(help="The public key, in PEM, that must have signed it.")] = None,
) -> int:
    """Check a proof's evidence without its cluster: signature, digest, and the verdict computed again from its history.

    Exit code 0 if it holds, also if its verdict is a failure, and 1 if it does not.
    """
    from gameday.cli.console import console
    from gameday_prove.evidence import check

    out = console()
    found = check(file, key)
    for problem in found.problems:
        out.print(f"does not hold: {problem}", style="red", soft_wrap=True)
    for remark in found.remarks:
        out.print(remark, style="yellow", soft_wrap=True)
    if found.problems:
        return ExitCode.FAILED
    out.print(f"holds: its history gives the verdict that it states: {found.headline}", style="bold", soft_wrap=True)
    return ExitCode.PASSED
