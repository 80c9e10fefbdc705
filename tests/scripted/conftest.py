"""A folder for runs whose every write is synced: in memory, where the machine has such a place."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[Path]:
    if not _IN_MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY, prefix="gameday-test-") as folder:
        yield Path(folder)
