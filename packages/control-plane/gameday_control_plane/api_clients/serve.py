"""The inside of a client process: it says that it is ready, runs from a second line on, and ends with its input."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from gameday_control_plane.api_clients.process import Line


class Clients(Protocol):
    """The clients of a process. `end` is called from another thread than `run`, and makes it return."""

    def run(self) -> None: ...

    def end(self) -> None: ...


def say(line: Line) -> None:
    """Print a line for the agent."""
    with suppress(BrokenPipeError):  # the agent is gone, and the clients end with standard input
        print(line.model_dump_json(exclude_defaults=True), flush=True)


def run_until_input_ends(clients: Clients, ready: Line, last: Callable[[], Line]) -> int:
    """Run the clients from the next line of standard input until its end, and return the exit status.

    Args:
        clients: The clients, which already have their order.
        ready: The line that says so.
        last: Returns the line to print once they have ended.
    """
    say(ready)
    sys.stdin.readline()
    thread = threading.Thread(target=clients.run)
    thread.start()
    while sys.stdin.readline():
        pass
    clients.end()
    thread.join()
    say(last())
    return 0
