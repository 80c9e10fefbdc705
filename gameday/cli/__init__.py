"""`gameday …`: the only place that turns outcomes into exit codes, and errors into text.

Command modules import Prefect, pandas and clients inside the commands that need them, so that `gameday --help` and
`gameday validate` answer at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Annotated, NoReturn

import typer

from gameday import __version__, plugins
from gameday.cli.help_page import HelpGroup
from gameday.errors import CommandError, DocumentError, IncompleteInstallationError, ProfileError, StartError
from gameday.exit_codes import ExitCode
from gameday.plain_file import NO_PLACE, not_written
from gameday.text import printable, printable_lines

COMMAND_MODULES = (
    "gameday.cli.up",
    "gameday.cli.plan_list",
    "gameday.cli.plans",
    "gameday.cli.detectors",
    "gameday.cli.doctor",
    "gameday.cli.alerts",
    "gameday.cli.game_day",
    "gameday.cli.report",
    "gameday.cli.reap",
    "gameday.cli.cluster",
    "gameday.cli.cases",
    "gameday.cli.coverage",
    "gameday.cli.season",
    "gameday.cli.post_mortem",
    "gameday.cli.listen",
    "gameday.cli.digest",
    "gameday.cli.export",
)
"""Ours; each has `register(app: typer.Typer) -> None`, which adds its commands, as has each module of a package."""
_TYPER_INTERRUPTED = 130
"""Typer's exit status after Ctrl-C."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gameday {__version__}")
        raise typer.Exit


def _gameday(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Chaos game-days for GPU Kubernetes clusters.

    Exit codes: 0 passed · 1 failed · 2 unknown · 3 aborted · 4 cluster dirty · 5 refused · 64 usage · 70 internal.
    """


def build_app() -> typer.Typer:
    """Build the command line from our command modules, and those of installed packages."""
    built = typer.Typer(
        name="gameday",
        cls=HelpGroup,
        callback=_gameday,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    own = [import_module(module) for module in COMMAND_MODULES]
    for register in plugins.find(plugins.Group.COMMANDS, own, _register).parts.values():
        register(built)
    return built


def _register(module: ModuleType) -> dict[str, Callable[[typer.Typer], None]]:
    return {module.__name__: module.register}


app = build_app()


def main() -> None:
    """Run this process's command line and exit."""
    code: int = ExitCode.INTERNAL

    def end() -> NoReturn:
        # Python gives SIGINT back to the kernel at its very end, so a late Ctrl-C would replace the exit code of what
        # is done. CPython before 3.14 also unwinds the threads that still run then, and the Rust code that some of them
        # are in (pydantic's) answers with an abort.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    # Registered first, this runs last: until then Ctrl-C ends everything that still waits.
    atexit.register(end)
    code = run(sys.argv[1:])
    sys.exit(code)


_command = cache(typer.main.get_command)
"""The parser of an app; building one takes as long as a short command."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors go to stderr."""
    try:
        result = _command(app)(list(arguments), prog_name="gameday", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return _explain(error)
    if result == _TYPER_INTERRUPTED:
        return _fail("interrupted", ExitCode.ABORTED)
    return result if isinstance(result, int) else ExitCode.PASSED


def _explain(error: BaseException) -> int:
    match error:
        case CommandError() | ProfileError() | StartError():
            return _fail(str(error), error.code)
        case DocumentError():
            print(error, file=sys.stderr)
            return ExitCode.USAGE
        case typer.TyperException():
            return _usage(error)
        case KeyboardInterrupt() | typer.Abort():
            return _fail("interrupted", ExitCode.ABORTED)
        case BrokenPipeError() | SystemExit():
            return _reader_gone()
    return _internal(error)


def _fail(message: str, code: ExitCode) -> int:
    print(f"gameday: {printable_lines(message)}", file=sys.stderr)
    return code


def _usage(error: typer.TyperException) -> int:
    said = error.format_message()
    if not said.strip():  # no arguments at all: typer has printed the help instead
        return ExitCode.USAGE
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "gameday"
    return _fail(f"{printable(said)}\nSee: {command} --help", ExitCode.USAGE)


def _reader_gone() -> int:
    """End silently, because the reader of our output (`| head`) has left.

    typer turns the first such error into a SystemExit; the last one reaches us.
    """
    # The interpreter flushes stdout once more at its end, and would complain about it.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.ABORTED


def _internal(error: BaseException) -> int:
    import tempfile  # both only for the rare case
    import traceback

    if isinstance(error, IncompleteInstallationError):
        return _fail(str(error), ExitCode.INTERNAL)  # our code's traceback would not help
    if isinstance(error, OSError) and error.errno in NO_PLACE:  # nor here
        return _fail(not_written(error, "a file that this command writes"), ExitCode.UNKNOWN)
    said = printable(f"{type(error).__name__}: {error}")
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="gameday-", suffix=".traceback.txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.writelines(traceback.format_exception(error))
        where = f"the traceback is in {file.name}; please report it with the command you ran"
    except OSError as why:
        where = f"its traceback could not be written: {why.strerror}"
    return _fail(f"internal error: {said}\n{where}", ExitCode.INTERNAL)
