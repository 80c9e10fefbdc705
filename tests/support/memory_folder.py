"""A folder for runs whose every write is synced: in memory, where the machine has such a place."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Yield a folder that is gone afterwards."""
    place = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place, prefix="gameday-test-") as folder:
        yield Path(folder)
