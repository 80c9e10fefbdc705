"""Temporary folders of commands, with a clear error if the machine has no room for one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.history.room import room_in
from gameday.plain_file import not_written

_NEEDED_BYTES = 64 * 2**20
"""Eight times what a virtual cluster of eight nodes and its Prefect server write in one game-day (docs/measured.md)."""


def temporary_folder(prefix: str) -> Path:
    """Make a temporary folder for servers and their logs; its name begins with the prefix.

    Raises:
        CommandError: None can be made, or too little room is left in it.
    """
    try:
        room_in(Path(tempfile.gettempdir())).require(_NEEDED_BYTES)
        return Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        message = f"no temporary folder: {not_written(error, 'TMPDIR')}; TMPDIR names another place"
        raise CommandError(message, ExitCode.REFUSED) from None
