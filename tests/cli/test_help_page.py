"""`gameday --help` and each command's: every command in a panel, with examples that its own options accept."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gameday.cli import run
from gameday.cli.help_page import Panel, folded
from gameday.exit_codes import ExitCode
from tests.cli.accepted import GAMEDAY, accept

CONSOLE = Path(sys.executable).parent / "gameday"


def _paths(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command and group with the words behind `gameday` that call it."""
    yield path, command
    for inner in getattr(command, "commands", {}).values():
        yield from _paths(inner, *path, inner.name)


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


def test_every_example_is_accepted() -> None:
    for example in EXAMPLES:
        accept(example.rpartition("| ")[2].removeprefix("sudo "))


def test_help_fits_its_terminal_and_cuts_no_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path, command in _paths(GAMEDAY):
        assert run([*path, "--help"]) == ExitCode.PASSED
        out = capsys.readouterr().out
        assert [line for line in out.splitlines() if len(line) > 80] == []
        options = [param for param in command.params if param.param_type_name == "option"]
        names = [name for option in options for name in (*option.opts, *option.secondary_opts)]
        assert [name for name in names if not re.search(rf"{re.escape(name)}(?![\w-])", out)] == [], path
        assert "<bool>" not in out, path


def test_a_paragraph_of_a_docstring_is_filled_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run(["up", "--help"])
    out = capsys.readouterr().out
    assert " Without --profile it starts a cluster of virtual GPU nodes. With --profile,    \n game-days break" in out


@pytest.mark.parametrize("columns", [80, 120])
def test_a_folded_example_is_the_same_command_line_to_a_shell(columns: int) -> None:
    for example in (*EXAMPLES, "gameday post-mortem --node 'a node   of ours' --from \"2h   ago\" --to now"):
        shown = "\n".join(folded(example, columns))
        assert shlex.split(shown.replace("\\\n", "")) == shlex.split(example)
        assert max(map(len, shown.splitlines())) < columns


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
    assert completed("mine/") == ["mine/inner.yaml"]
