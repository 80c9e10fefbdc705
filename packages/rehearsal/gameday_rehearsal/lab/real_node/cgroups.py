"""The control groups of a real node: one of its name in each hierarchy, v1 or v2, with all of its pods below."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

_ENDS_WITHIN_S = 3.0
"""Seconds in which killed processes leave their groups. Our own figure: it takes milliseconds."""
_POLL_S = 0.02


def hierarchies(mounts: Path = Path("/proc/self/mounts")) -> list[Path]:
    """Return where control groups are mounted. Raises OSError."""
    fields = [line.split() for line in mounts.read_text(encoding="utf-8").splitlines()]
    return [Path(one[1]) for one in fields if one[2] in ("cgroup", "cgroup2")]


def make(name: str) -> None:
    """Make the groups of a node, empty. Raises OSError."""
    remove(name)
    for hierarchy in hierarchies():
        (hierarchy / name).mkdir()


def remove(name: str) -> None:
    """Remove the groups of a node; their processes must be ended. Raises OSError after some seconds of trying."""
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while True:
        try:
            for hierarchy in hierarchies():
                for group in _deepest_first(hierarchy / name):
                    group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
        else:
            return


def _deepest_first(group: Path) -> Iterator[Path]:
    if not group.is_dir():
        return
    for below in group.iterdir():
        if below.is_dir():
            yield from _deepest_first(below)
    yield group
