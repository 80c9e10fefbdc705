"""Files of a folder that may come from somebody else. A symbolic link in it is neither read nor written.

A link in a run's folder could show the reader's own files in the report, or overwrite them with it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import BinaryIO

NO_PLACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE})
"""The errors of a disk that takes no more data; they do not depend on the file."""
_TO_DO = {
    errno.ENOSPC: "make room there (`df -h` and `df -i` show what is used up)",
    errno.EDQUOT: "make room there, or ask for a larger quota",
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`)",
    errno.EROFS: "mount it writable, or name another folder",
    errno.EACCES: "let this user write there, or name another folder",
    errno.EPERM: "let this user write there, or name another folder",
    errno.EIO: "its disk fails (`dmesg`): name another folder",
    errno.ENOENT: "make its folder, or name another that stays",
    errno.ESTALE: "make its folder, or name another that stays",
    errno.ETIMEDOUT: "look at its file system, or name another folder",
}
_IS_LINK = "it is a symbolic link, and none is followed here: put a copy in its place, or remove it"
_IS_NO_FILE = "not a regular file: remove it"


def refuse_link(path: Path) -> None:
    """Raise OSError if the path is a symbolic link; a missing file is fine."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, _IS_LINK, str(path))


def open_plain(path: Path) -> BufferedReader:
    """Open a file for reading. Raises OSError, also for a link, a pipe or a device."""
    return os.fdopen(_descriptor(path, os.O_RDONLY), "rb")


def open_to_append(path: Path) -> BufferedWriter:
    """Open a file for appending, and create it if it is missing. Raises OSError as `open_plain`.

    It is buffered, because an unbuffered write to a disk that becomes full is cut short without an error.
    """
    return os.fdopen(_descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def read_plain(path: Path) -> bytes:
    """Return the whole file. Raises OSError as `open_plain`."""
    with open_plain(path) as file:
        return file.read()


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that replaces the path when the block ends well; readers see the old file or the new one.

    Raises:
        OSError: The path is a link, or the file cannot be written.
    """
    refuse_link(path)
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with beside.open("xb") as file:
            yield file
        beside.replace(path)
    except OSError as error:
        if error.filename in (None, str(beside)):  # an error of a full disk names no file
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write the whole file or nothing; text becomes UTF-8. Raises OSError as `written_whole`."""
    with written_whole(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_each(files: Mapping[Path, str | bytes]) -> str:
    """Write each file as `write_whole` does. If the disk is full, return why a file is missing; otherwise return "".

    Raises OSError for every other failure.
    """
    why = ""
    for path, content in files.items():
        try:
            write_whole(path, content)
        except OSError as error:
            if error.errno not in NO_PLACE:
                raise
            why = why or f"Not written: {not_written(error, path)}."
    return why


def not_written(error: OSError, path: Path | str) -> str:
    """Return a message with the file that cannot be written, the system's reason, and what to do.

    Args:
        error: The system's error.
        path: The file or the folder, or words for it; used if the error names none.
    """
    place = error.filename or path
    said = error.strerror or str(error)
    what = f"{place}: {said[:1].lower()}{said[1:]}"
    return f"{what}; {_TO_DO[error.errno]}" if error.errno in _TO_DO else what


def _descriptor(path: Path, flags: int) -> int:
    try:
        # Without O_NONBLOCK, opening a pipe that has no writer would block.
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        refuse_link(path)
        raise error from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, _IS_NO_FILE, str(path))
    return file
