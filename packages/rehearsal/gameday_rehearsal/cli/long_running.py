"""Helpers of commands that keep a cluster running in a folder until they are stopped."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import typer

from gameday.errors import CommandError
from gameday.exit_codes import ExitCode

# A supervisor gives each of its processes 5 s at most before it kills it.
_ENDS_WITHIN_S = 20.0


def end_holder(folder: Path, what: str) -> int:
    """End the process that holds the folder and wait for it. The exit code is 0 even if there is none."""
    from gameday.cluster.virtual_cluster import holder

    pid = holder(folder)
    if pid is None:
        typer.echo(f"no {what} runs in {folder}")
        return ExitCode.PASSED
    if pid == 0:
        raise CommandError(f"a {what} has just begun in {folder}; try again", ExitCode.REFUSED)
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return ExitCode.PASSED
    except PermissionError:
        raise CommandError(f"process {pid}, which holds {folder}, is another user's", ExitCode.REFUSED) from None
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while holder(folder) == pid:
        if time.monotonic() > deadline:
            raise CommandError(f"process {pid} did not end within {_ENDS_WITHIN_S:g} s", ExitCode.INTERNAL)
        time.sleep(0.1)
    return ExitCode.PASSED


def running_state(folder: Path, what: str) -> dict[str, Any] | None:
    """Return what the folder's running cluster wrote about itself; if none runs, print that and return None."""
    from gameday.cluster.virtual_cluster import holder
    from gameday_rehearsal.folder import STATE

    pid = holder(folder)
    if pid is None:
        typer.echo(f"no {what} runs in {folder}")
        return None
    try:
        state: dict[str, Any] = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        typer.echo(f"a {what} starts or ends in {folder} (process {pid})")
        return None
    return state
