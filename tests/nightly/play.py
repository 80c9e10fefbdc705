"""Play one suite in a process group of its own, and write down what became of it as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from xml.etree.ElementTree import ParseError

from gameday.processes.lifeline import die_with_parent
from tests.nightly import junit, left
from tests.nightly.junit import Outcome
from tests.nightly.record import Round
from tests.nightly.suites import Suite
from tests.support.quarantine import PLAY_VARIABLE

LONGEST_S = 3 * 3600.0
"""Three times what all of CI took at its worst, beside other work on two cores; every test has a limit of its own."""
_ENDS_WITHIN_S = 60.0
"""Seconds after Ctrl-C for the tests' fixtures to end their servers, before they are killed."""
_LOOK_EVERY_S = 0.1
_PASSED_ON = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "ARGS")
"""Variables that `make nightly` sets, and that would change the suites' own `make`."""


def play(suite: Suite, round_: Round, prefect: Path) -> list[Outcome]:
    """Play a suite; return what became of its tests and of itself.

    Args:
        suite: The suite.
        round_: Its round, in whose folder everything is written.
        prefect: The home of the user's own Prefect.

    Raises:
        KeyboardInterrupt: Somebody stopped it; it then counts as not played.
    """
    before, began = left.look(prefect), time.monotonic()
    partial = round_.junit(suite.name).with_suffix(".part")
    for stale in (partial, round_.junit(suite.name)):  # of a nightly that was killed here
        stale.unlink(missing_ok=True)
    try:
        status = _run(suite.command(round_.number, partial), round_.log(suite.name))
        took = time.monotonic() - began
        if partial.is_file():
            partial.replace(round_.junit(suite.name))
        remains = left.new_since(before, prefect)
    finally:
        left.end_descendants()
    whole = [
        Outcome(f"suite {suite.name} ends by itself", *_end(suite, status, round_)),
        Outcome(f"suite {suite.name} leaves nothing", not remains, "; ".join(remains)),
    ]
    junit.write(round_.whole(suite.name), suite.name, took, whole)
    return [*_tests(round_.junit(suite.name)), *whole]


def _run(command: list[str], log: Path) -> int | None:
    """Return the exit status of a command; None where it had to be killed."""
    environment = {name: value for name, value in os.environ.items() if name not in _PASSED_ON}
    # A crash of the interpreter then leaves a traceback in the log.
    environment |= {PLAY_VARIABLE: "1", "PYTHONFAULTHANDLER": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - it takes no lock and loads nothing
        )
    try:
        return process.returncode if _ended(process, LONGEST_S) else None
    finally:
        _end_group(process)


def _ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while process.poll() is None:
        if time.monotonic() > deadline:
            return False
        left.bury(except_for=process.pid)
        time.sleep(_LOOK_EVERY_S)
    return True


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a suite and its workers as a terminal's Ctrl-C does, and kill what goes on."""
    for which in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, which)
        _ended(process, _ENDS_WITHIN_S)


def _end(suite: Suite, status: int | None, round_: Round) -> tuple[bool, str]:
    """Return True if a suite came to its end; else False and the reason."""
    log = round_.log(suite.name)
    if status is None:
        return False, f"killed after {LONGEST_S / 3600:g} h; its log is {log}"
    tests = _tests(round_.junit(suite.name))
    if suite.is_pytest and not tests:
        return False, f"exit status {status}, and not one test's result; {_last_words(log)}"
    if status and all(outcome.passed is not False for outcome in tests):
        return False, f"exit status {status}; {_last_words(log)}"
    return True, ""


def _tests(file: Path) -> list[Outcome]:
    """Return the outcomes in pytest's file; none where it is missing or was cut off."""
    with suppress(OSError, ParseError):
        return junit.read(file)
    return []


def _last_words(log: Path) -> str:
    """Return the last line of a log that is not make's own, and where the log is."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    said = next((line.strip() for line in reversed(lines) if not line.startswith("make")), "nothing")
    return f"{log} ends with: {said}"
