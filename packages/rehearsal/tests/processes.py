"""What is left of a rehearsal: living processes that name its folder, and ports that still answer."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gameday.processes.ports import HeldPorts


def naming(folder: Path) -> set[int]:
    """Living processes other than this one whose command line names the folder."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                line, state = (
                    (entry / "cmdline").read_bytes(),
                    (entry / "stat").read_text().rpartition(")")[2].split()[0],
                )
            except OSError:
                continue
            if str(folder).encode() in line and state != "Z":
                found.add(int(entry.name))
    return found


def answers(url: str) -> bool:
    host, port = url.split("/")[2].split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def until(condition: Callable[[], object], within_s: float, what: str) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.05)


@contextmanager
def listening(*ports: int) -> Iterator[None]:
    """Take ports that are held for programs, as one does that asks for their very numbers."""
    sockets = [socket.socket() for _ in ports]
    try:
        for thief, port in zip(sockets, ports, strict=True):
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            thief.bind(("127.0.0.1", port))
            thief.listen()
        yield
    finally:
        for thief in sockets:
            thief.close()


class RobbedPorts(ExitStack):
    """Holds ports as HeldPorts does; of the first ones it takes one before a program can have it."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self._index = index
        self.taken: int | None = None

    def hold(self, count: int, first: int = 0) -> HeldPorts:
        held = HeldPorts(count, first)
        if self.taken is None:
            self.taken = held.numbers[self._index]
            self.enter_context(listening(self.taken))
        return held
