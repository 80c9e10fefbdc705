"""The room that a game-day needs in a folder, checked before it begins and while it lasts."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gameday.errors import RefusedError
from gameday.plain_file import not_written

NEEDED_BYTES = 4 * 2**20
"""Eight times the size of an ordinary run (docs/measured.md, What a run takes of the disk)."""
NEEDED_FILES = 64
"""A run leaves 18 files and folders; a guest's output is one more for each node."""


@dataclass(frozen=True)
class Room:
    """The room that this user has left in a folder."""

    folder: Path
    free_bytes: int
    free_files: int | None
    """None if the file system creates inodes on demand."""
    is_read_only: bool

    def require(self, needed_bytes: int = NEEDED_BYTES) -> None:
        """Raise OSError if there is less room than this."""
        if self.is_read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self.folder))
        if self.free_files is not None and self.free_files < NEEDED_FILES:
            raise self._full(f"{self.free_files} inodes are free, {NEEDED_FILES} are needed")
        if self.free_bytes < needed_bytes:
            raise self._full(f"{self.free_bytes / 2**20:.1f} MiB are free, {needed_bytes / 2**20:g} are needed")

    def _full(self, why: str) -> OSError:
        return OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} ({why})", str(self.folder))


def room_in(folder: Path) -> Room:
    """Return the room in a folder; raises OSError if it is gone."""
    found = os.statvfs(folder)
    return Room(
        folder,
        free_bytes=found.f_bavail * found.f_frsize,
        free_files=found.f_favail if found.f_files else None,
        is_read_only=bool(found.f_flag & os.ST_RDONLY),
    )


@contextmanager
def refused_where_not_written(folder: Path) -> Iterator[None]:
    """Turn a failed first write of a game-day, a season or a fleet run into a refusal.

    Raises:
        RefusedError: A file cannot be written.
    """
    try:
        yield
    except OSError as error:
        why = not_written(error, folder)
        raise RefusedError(f"the folder of reports cannot be written: {why}") from None
