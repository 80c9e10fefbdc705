"""`python -m gameday_control_plane.api_clients.steady`: a process with clients that ask at a steady rate.

The first line on standard input is a SteadyOrder; the clients begin at the second line, and end when standard input
does, because their agent has died or ends them. Every line on standard output is a SteadyLine.
"""

from __future__ import annotations

import sys

from gameday_control_plane.api_clients.serve import run_until_input_ends, say
from gameday_control_plane.api_clients.steady_clients import SteadyClients, cpu_seconds
from gameday_control_plane.api_clients.steady_order import SteadyLine, SteadyOrder


def main() -> int:
    """Ask until standard input ends, and return the exit status."""
    clients = SteadyClients(SteadyOrder.model_validate_json(sys.stdin.readline()), say)
    return run_until_input_ends(clients, SteadyLine(ready=True), lambda: SteadyLine(cpu_seconds=cpu_seconds()))


if __name__ == "__main__":
    sys.exit(main())
