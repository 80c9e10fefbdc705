"""Whatever a cluster or a command line holds is text on the terminal, and never a command to it."""

from __future__ import annotations

import io

import pytest
from rich.table import Table
from rich.text import Text

from gameday.cli import run
from gameday.cli.console import GameDayConsole
from gameday.exit_codes import ExitCode

HOSTILE = "\x1b]0;owned\x07\x1b[2Jnode\u202e\x9b31m[bold]x[/bold]"
SHOWN = r"\x1b]0;owned\x07\x1b[2Jnode\u202e\x9b31m[bold]x[/bold]"


@pytest.mark.parametrize("terminal", [True, False])
def test_the_console_prints_escape_sequences_as_text(terminal: bool) -> None:
    out = io.StringIO()
    console = GameDayConsole(
        file=out, force_terminal=terminal, width=200, highlight=False, markup=False, color_system=None
    )
    table = Table("node", title=Text(HOSTILE))
    table.add_row(Text(f"{HOSTILE}\nsecond line"))
    console.print(HOSTILE, soft_wrap=True)
    console.print(table)
    said = out.getvalue()
    assert said.count(r"\x1b]0;owned") == 3
    assert "second line" in said
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(said)


def test_an_error_shows_escape_sequences_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "xid-95-uncontained-ecc", "--profile", f"/nonexistent/{HOSTILE}"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert SHOWN in said
    assert "\x1b" not in said
