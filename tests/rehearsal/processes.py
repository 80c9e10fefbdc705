"""What is left of a rehearsal: living processes that name its folder, and ports that still answer."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path


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
