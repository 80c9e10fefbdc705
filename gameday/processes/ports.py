"""Loopback ports for programs that are started with a port number, and the remedy if one is taken all the same."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self, TypeVar

from gameday.errors import ChildError, StartError

log = logging.getLogger(__name__)

PORT_TAKEN = "address already in use"
"""strerror(EADDRINUSE) in lower case: Go, asyncio and Python's socket module all quote it."""
Bound = TypeVar("Bound")
"""Something that listens on a port, or holds it."""
PREFECT_PORT, REPORTS_PORT = 4270, 4271
"""Ports of the pages that people bookmark: Prefect's and the reports'. Our own choice: near Prefect's 4200, and below
those that Linux gives out (`net.ipv4.ip_local_port_range`).
"""
_NEXT = 20
"""Number of ports to try from such a port on; after that, any."""
_TRIES = 3
_LOOPBACK = "127.0.0.1"
_REMEDIES = {
    errno.EADDRINUSE: "`ss -tanp` lists who holds them: end some of it, or widen the range of ports that Linux gives "
    "away, as with `sudo sysctl net.ipv4.ip_local_port_range='1024 65535'`",
    errno.EMFILE: "raise the limit of this shell with `ulimit -n 4096`",
}
"""The remedy by the errno of a bind to any free port (ip(7), socket(2))."""


class HeldPorts:
    """Ports that the kernel gives to nobody else until `release`; only a program that asks for the number gets one.

    Each port is bound here, but nobody listens on it here. Linux lets a second socket listen on such a port if both
    have SO_REUSEADDR, as the listeners of Go, asyncio, uvicorn and `http.server` do. It gives the port to no socket
    that asks for any free port, and to none without SO_REUSEADDR. While the program is down, its clients are refused.
    """

    def __init__(self, count: int, first: int = 0) -> None:
        """Hold free ports.

        Args:
            count: Number of ports.
            first: The number for the first of them, or the next free one; 0: any.

        Raises:
            StartError: None is free.
        """
        numbers = []
        with ExitStack() as held:
            try:
                for number in (first, *[0] * (count - 1)):
                    bound, claimed = first_free(number, _bound)
                    held.enter_context(claimed)
                    numbers.append(int(held.enter_context(bound).getsockname()[1]))
            except OSError as error:
                raise no_port(error) from None
            self._held = held.pop_all()
        self.numbers = tuple(numbers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the ports back. Idempotent."""
        self._held.close()


def no_port(error: OSError) -> StartError:
    """Return the error for a person if Linux has no free port."""
    remedy = _REMEDIES.get(error.errno or 0, "see whether this process may open sockets at all")
    return StartError(f"no port of {_LOOPBACK} can be had ({error.strerror}): {remedy}; then start the command again")


def first_free(number: int, bind: Callable[[int], Bound]) -> tuple[Bound, ExitStack]:
    """Return what `bind` makes of a port's number, or of the next one that is free, and the claim on the number.

    Close the claim when the port is given back. A port that the kernel chose needs none.

    Raises:
        OSError: No port is free.
    """
    for one in range(number, number + _NEXT) if number else ():
        with ExitStack() as claimed:
            try:
                claimed.enter_context(_claim(one))
                return bind(one), claimed.pop_all()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
    return bind(0), ExitStack()


def _claim(number: int) -> socket.socket:
    """Claim a port's number among the programs of ours on this machine, until the socket that is returned is closed.

    Linux would let two of them hold the same number as long as nobody listens on it, and each would start its server.
    The claim is a name of the abstract namespace (unix(7)), which the kernel gives to one socket at a time.

    Raises:
        OSError: Another program of ours has it (EADDRINUSE).
    """
    claimed = socket.socket(socket.AF_UNIX)
    try:
        claimed.bind(f"\0gpu-gameday/port/{number}")
    except OSError:
        claimed.close()
        raise
    return claimed


def start_on_free_ports(start: Callable[[], None], wrote: Callable[[str], bool], end: Callable[[], None]) -> None:
    """Call `start`. If a program found its port taken, end everything and start again on newly chosen ports.

    In spite of HeldPorts, a port is lost to a program that asks for exactly its number in the same second.

    Args:
        start: Chooses the ports and starts every program, so that each learns the ports of the others.
        wrote: Returns True if a program's log has the words.
        end: Ends what `start` began.

    Raises:
        ChildError: A program did not start for another reason, or the third time for this one. The caller must then
            call `end`.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            start()
            return
        except ChildError as error:
            if not (tries_left and wrote(PORT_TAKEN)):
                raise
            log.warning("another program took a port before ours listened; starting again on others: %s", error)
            end()


def _bound(number: int) -> socket.socket:
    held = socket.socket()
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((_LOOPBACK, number))
    except OSError:
        held.close()
        raise
    return held
