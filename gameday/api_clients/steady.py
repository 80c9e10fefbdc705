"""`python -m gameday.api_clients.steady`: a process with clients that ask at a steady rate.

The first line on standard input is a SteadyOrder; the clients begin at the second line, and end with standard input:
their agent is dead, or ends them. Every line on standard output is a SteadyLine.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

from gameday.api_clients.steady_clients import SteadyClients, cpu_seconds
from gameday.api_clients.steady_order import SteadyLine, SteadyOrder


def main() -> int:
    """Ask until standard input ends, and return the exit status."""
    clients = SteadyClients(SteadyOrder.model_validate_json(sys.stdin.readline()), _say)
    _say(SteadyLine(ready=True))
    sys.stdin.readline()
    thread = threading.Thread(target=clients.run)
    thread.start()
    while sys.stdin.readline():
        pass
    clients.end()
    thread.join()
    _say(SteadyLine(cpu_seconds=cpu_seconds()))
    return 0


def _say(line: SteadyLine) -> None:
    with suppress(BrokenPipeError):  # the agent is gone, and the clients end with standard input
        print(line.model_dump_json(exclude_defaults=True), flush=True)


if __name__ == "__main__":
    sys.exit(main())
