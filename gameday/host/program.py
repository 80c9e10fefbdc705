"""Run a program without a shell, with a limit on its output and its time."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Sequence

from gameday.errors import HostBusyError, HostError
from gameday.host.base import ProgramResult

MAX_OUTPUT_BYTES = 1024 * 1024
"""The most bytes kept of stdout and of stderr; the rest is read and dropped, so that the program never blocks. The
longest outputs that must be whole are crictl's list of a node's pods and the JSON of `dcgmi diag`, some hundred kB
each."""
_GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL. A `dcgmi diag` that is asked to end stops its tests, which run in DCGM's host
engine and would otherwise go on."""
_LOOK_EVERY_S = 0.25
"""Seconds between two looks at the event that ends a program."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENVIRONMENT = {"PATH": _PATH, "LC_ALL": "C.UTF-8"}
"""The program gets nothing from the agent's environment, which holds its task and may hold secrets."""


def run_program(
    argv: Sequence[str],
    timeout_s: float,
    shown: Sequence[str] | None = None,
    ended: threading.Event | None = None,
) -> ProgramResult:
    """Run a program to its end, then kill the rest of its process group.

    Args:
        argv: The program and its arguments.
        timeout_s: Seconds after which the program's process group is asked to end, and then killed.
        shown: The command as the result and errors show it, if `argv` has a wrapper in front; None: `argv`.
        ended: Ends the program as `timeout_s` does, as soon as it is set.

    Raises:
        HostBusyError: The program does not end in time.
        HostError: It cannot be started, or was ended.
    """
    shown = tuple(shown or argv)
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_ENVIRONMENT,
            start_new_session=True,
        )
    except (OSError, ValueError, IndexError) as error:
        raise HostError(f"cannot run {' '.join(shown)!r}: {error}") from None
    deadline = time.monotonic() + timeout_s
    with process:
        try:
            out, err = _drain(process, deadline, ended)
            if ended and ended.is_set():
                _end(process)
                raise HostError(f"{' '.join(shown)!r} was ended, as the agent has to end")
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _end(process)
            raise HostBusyError(f"{' '.join(shown)!r} did not end within {timeout_s:g} s and was killed") from None
        finally:
            # Also after a good end: nothing may outlive the program.
            _signal_group(process.pid, signal.SIGKILL)
    return ProgramResult(
        argv=shown,
        exit_status=process.returncode,
        stdout=out.decode("utf-8", "replace"),
        stderr=err.decode("utf-8", "replace"),
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a program's process group to end, and give it a moment."""
    _signal_group(process.pid, signal.SIGTERM)
    _drain(process, time.monotonic() + _GRACE_S)


def _drain(
    process: subprocess.Popen[bytes], deadline: float, ended: threading.Event | None = None
) -> tuple[bytes, bytes]:
    """Return both outputs up to their end, the deadline or the event, each shortened to MAX_OUTPUT_BYTES."""
    assert process.stdout
    assert process.stderr
    kept = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as selector:
        for descriptor in kept:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and (remaining_s := deadline - time.monotonic()) > 0:
            if ended and ended.is_set():
                break
            for key, _ in selector.select(min(remaining_s, _LOOK_EVERY_S) if ended else remaining_s):
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fd)
                kept[key.fd] += chunk[: MAX_OUTPUT_BYTES - len(kept[key.fd])]
    out, err = kept.values()
    return bytes(out), bytes(err)


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
