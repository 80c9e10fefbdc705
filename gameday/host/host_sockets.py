"""Sockets in the host's network namespace, each bound to one interface of the node.

An agent's pod has its own network. A thread enters the namespace of the host's process 1, makes the socket there and
ends; the socket stays in that namespace.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gameday.errors import HostError, LinkError
from gameday.host.base import Listener

_CLONE_NEWNET = 0x40000000
"""The flag in sched.h; Python has os.setns only from 3.12 on."""
_SIOCGIFADDR = 0x8915
"""The request for an interface's IPv4 address in linux/sockios.h."""
_BACKLOG = 4

T = TypeVar("T")


def listen(proc: Path, interface: str) -> Listener:
    """Listen at an interface's IPv4 address, on a free port.

    Args:
        proc: The proc file system that shows the host's process 1.
        interface: Name of the interface.

    Raises:
        HostError: There is no such interface, it has no IPv4 address, or the namespace cannot be entered.
    """

    def make() -> Listener:
        with _bound(interface) as made:
            made.bind((_address_of(made, interface), 0))
            made.listen(_BACKLOG)
            address, port = made.getsockname()
            return Listener(made.dup(), address, port)

    return _in_host_network(proc, make)


def connect(proc: Path, interface: str, to: tuple[str, int], timeout_s: float) -> socket.socket:
    """Connect through an interface.

    Args:
        proc: The proc file system that shows the host's process 1.
        interface: Name of the interface that the packets leave through.
        to: Address and port.
        timeout_s: The longest wait.

    Raises:
        LinkError: The network lets no connection through in time.
        HostError: There is no such interface, or the namespace cannot be entered.
    """

    def make() -> socket.socket:
        with _bound(interface) as made:
            made.settimeout(timeout_s)
            try:
                made.connect(to)
            except OSError as error:
                raise LinkError(f"{interface} to {to[0]}: {error.strerror or error}") from None
            return made.dup()

    return _in_host_network(proc, make)


def _bound(interface: str) -> socket.socket:
    """Return a TCP socket that sends only through this interface, regardless of other routes."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
    except OSError as error:
        made.close()
        raise HostError(f"no socket can be bound to the interface {interface}: {error.strerror}") from None
    return made


def _address_of(made: socket.socket, interface: str) -> str:
    try:
        found = fcntl.ioctl(made, _SIOCGIFADDR, struct.pack("256s", interface.encode()))
    except OSError as error:
        raise HostError(f"interface {interface} has no IPv4 address: {error.strerror}") from None
    return socket.inet_ntoa(found[20:24])  # after a name of 16 bytes, and a family and a port of 2 each


def _in_host_network(proc: Path, make: Callable[[], T]) -> T:
    """Return the result of `make` in the namespace of process 1. Raises HostError, and what `make` raises."""
    made: list[T] = []
    raised: list[HostError] = []

    def run() -> None:
        try:
            enter_host_network(proc)
            made.append(make())
        except OSError as error:
            raised.append(HostError(f"cannot use the host's network: {error.strerror or error}"))
        except HostError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return made[0]


def enter_host_network(proc: Path) -> None:
    """Move this thread, and the threads it starts, into process 1's network namespace. Raises OSError."""
    host = proc / "1/ns/net"
    if host.samefile("/proc/thread-self/ns/net"):
        return
    descriptor = os.open(host, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
