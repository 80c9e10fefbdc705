"""Loopback ports for programs that cannot choose one themselves and say which."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_ports(number: int) -> list[int]:
    """Ports nobody listens on now; all are held until all are found, so that none is given twice."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
