"""Turn the errors that keep a rehearsal or a lab from starting into one that a person can act on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gameday.errors import ChildError, FolderHeldError, ProgramMissingError, SeedError, StartError
from gameday.plain_file import not_written


@contextmanager
def start_errors(folder: Path, command: str, *, holder: str, about_files: str = "") -> Iterator[None]:
    """Raise StartError for any failure inside the block.

    `gameday <command> down` ends the `holder` of the folder; `about_files` begins the message about a file.
    """
    try:
        yield
    except (ChildError, ProgramMissingError, SeedError) as error:
        raise StartError(str(error)) from None
    except FolderHeldError as error:
        raise StartError(
            f"{holder} (process {error.pid}) runs in {folder};"
            f" `gameday {command} down --folder {shlex.quote(str(folder))}` ends it"
        ) from None
    except OSError as error:
        raise StartError(f"{about_files}{not_written(error, folder)}") from None
