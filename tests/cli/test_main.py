"""How the command line ends: the exit codes of the table, words in place of tracebacks, and a quick start."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

import gameday.cli
from gameday import __version__
from gameday.cli import run
from gameday.errors import CommandError, DocumentError, DocumentProblem
from gameday.exit_codes import ExitCode

Capture = pytest.CaptureFixture[str]
CONSOLE = Path(sys.executable).parent / "gameday"


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int | None]], int]:
    """Run one command that does what it is given, through the real command line."""

    def run_it(act: Callable[[], int | None]) -> int:
        app = typer.Typer()
        app.command("act")(act)
        app.command("other")(lambda: None)
        monkeypatch.setattr(gameday.cli, "app", app)
        return run(["act"])

    return run_it


def _raise(error: BaseException) -> Callable[[], int | None]:
    def act() -> int | None:
        raise error

    return act


@pytest.mark.parametrize("code", list(ExitCode))
def test_a_command_ends_with_the_code_it_returns_or_exits_with(
    ends_with: Callable[[Callable[[], int | None]], int], code: ExitCode
) -> None:
    assert ends_with(lambda: code) == code
    assert ends_with(_raise(typer.Exit(code))) == code
    assert ends_with(_raise(CommandError("no", code))) == code


def test_a_command_that_returns_nothing_held(ends_with: Callable[[Callable[[], int | None]], int]) -> None:
    assert ends_with(lambda: None) == ExitCode.PASSED


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_ctrl_c_is_aborted(
    ends_with: Callable[[Callable[[], int | None]], int], capsys: Capture, error: BaseException
) -> None:
    assert ends_with(_raise(error)) == ExitCode.ABORTED
    assert capsys.readouterr().err == "gameday: interrupted\n"


def test_a_plan_error_of_any_command_is_usage(
    ends_with: Callable[[Callable[[], int | None]], int], capsys: Capture
) -> None:
    problem = DocumentProblem("p.yaml", 3, 1, "name", "'x'", "is wrong", "write it well")
    assert ends_with(_raise(DocumentError([problem]))) == ExitCode.USAGE
    assert capsys.readouterr().err == f"{problem}\n"


def test_a_fault_of_ours_leaves_a_short_message_and_a_traceback_in_a_private_file(
    ends_with: Callable[[Callable[[], int | None]], int],
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert ends_with(_raise(RuntimeError("not \x1b[31mthis"))) == ExitCode.INTERNAL
    err = capsys.readouterr().err
    (written,) = tmp_path.iterdir()
    assert err.splitlines() == [
        "gameday: internal error: RuntimeError: not \\x1b[31mthis",
        f"the traceback is in {written}; please report it with the command you ran",
    ]
    assert "Traceback (most recent call last)" in written.read_text(encoding="utf-8")
    assert written.stat().st_mode & 0o077 == 0


def test_a_fault_of_ours_where_no_file_can_be_written(
    ends_with: Callable[[Callable[[], int | None]], int],
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert ends_with(_raise(RuntimeError("x"))) == ExitCode.INTERNAL
    assert "its traceback could not be written: No such file or directory" in capsys.readouterr().err


def test_a_full_disk_is_no_fault_of_ours(ends_with: Callable[[Callable[[], int | None]], int], capsys: Capture) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/r/season.json")
    assert ends_with(_raise(error)) == ExitCode.UNKNOWN
    said = (
        "gameday: /r/season.json: no space left on device; make room there (`df -h` and `df -i` show what is used up)\n"
    )
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--no-such"], "No such option: --no-such"),
        (["validat"], "Did you mean 'validate'?"),
        (["validate"], "Missing argument 'PLAN...'"),
        (["detectors", "show"], "Missing argument"),
    ],
)
def test_a_wrong_command_line_is_64_and_points_at_help(arguments: list[str], said: str, capsys: Capture) -> None:
    assert run(arguments) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert said in err
    assert err.splitlines()[-1].startswith("See: gameday")


def test_no_arguments_is_the_help_and_64(capsys: Capture) -> None:
    assert run([]) == ExitCode.USAGE
    assert "Usage: gameday" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_the_commands_and_the_exit_codes(flag: str, capsys: Capture) -> None:
    assert run([flag]) == ExitCode.PASSED
    out = capsys.readouterr().out
    assert "validate" in out
    assert "64 usage" in out


def test_version(capsys: Capture) -> None:
    assert run(["--version"]) == ExitCode.PASSED
    assert capsys.readouterr().out == f"gameday {__version__}\n"


@pytest.mark.slow
def test_validate_loads_nothing_heavy() -> None:
    script = (
        "import json, sys; from gameday.cli import run; code = run(['validate', 'gpu-fell-off-the-bus']);"
        "print(json.dumps([code, sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert not {"prefect", "pandas", "kubernetes", "httpx", "pyarrow"} & {m.split(".")[0] for m in modules}


def test_the_console_script_passes_the_code_on() -> None:
    done = subprocess.run([CONSOLE, "validate", "no-such-plan"], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.USAGE
    assert "no-such-plan" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_reader_that_left_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([CONSOLE, "schema"], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert done.returncode == ExitCode.ABORTED
    assert done.stderr == ""


def test_threads_that_still_run_at_the_end_change_no_exit_code() -> None:
    script = """
import atexit, sys, threading, time
import typer
from pydantic import TypeAdapter, AfterValidator
from typing import Annotated
import gameday.cli

begun = threading.Event()

def wait(value):
    begun.set()
    time.sleep(0.3)
    return value

class SlowToGo:
    def __del__(self, sleep=time.sleep):
        sleep(1)

sys.its_end_takes_a_second = SlowToGo()
adapter = TypeAdapter(Annotated[int, AfterValidator(wait)])

def act() -> int:
    threading.Thread(target=adapter.validate_python, args=(1,), daemon=True).start()
    begun.wait()
    atexit.register(print, "and what others do at the end is done")
    print("done", end=" ")
    return 2

gameday.cli.app = typer.Typer()
gameday.cli.app.command("act")(act)
gameday.cli.app.command("other")(lambda: None)
sys.argv = ["gameday", "act"]
gameday.cli.main()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "done and what others do at the end is done\n", "")
