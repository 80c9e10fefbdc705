"""`gameday --help` and each command's: every command in a panel, with examples that its own options accept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gameday.cli import run
from gameday.cli.help_page import Panel
from gameday.exit_codes import ExitCode
from tests.cli.accepted import GAMEDAY, accept

CONSOLE = Path(sys.executable).parent / "gameday"


def _commands(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        if hasattr(command, "commands"):
            yield from _commands(command)
        else:
            yield command


EXAMPLES = [line.strip() for command in _commands(GAMEDAY) for line in (command.epilog or "").splitlines()[1:]]


def test_every_command_has_a_panel_and_an_example() -> None:
    assert {command.rich_help_panel for command in GAMEDAY.commands.values()} == set(Panel)
    assert [command.name for command in _commands(GAMEDAY) if not command.epilog] == []


def test_the_panels_come_in_the_order_in_which_they_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == ExitCode.PASSED
    out = capsys.readouterr().out
    starts = [out.index(f"─ {panel} ─") for panel in Panel]
    assert starts == sorted(starts)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_accepted(example: str) -> None:
    accept(example.rpartition("| ")[2])


def test_a_shell_completes_names_and_files_of_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("gpu-mine.yaml", "gpu-mine.txt", "mine/inner.yaml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    environment = {"_GAMEDAY_COMPLETE": "complete_bash", "COMP_CWORD": "2"}

    def completed(typed: str) -> list[str]:
        asked = {**os.environ, **environment, "COMP_WORDS": f"gameday run {typed}"}
        return subprocess.run([CONSOLE], env=asked, capture_output=True, text=True, check=False).stdout.split()

    assert completed("gpu-m") == ["gpu-memory-fragmented", "gpu-memory-full", "gpu-mine.yaml"]
    assert completed("min") == ["mine/"]
    assert completed("mine/") == ["mine/inner.yaml"]
