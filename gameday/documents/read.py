"""Read a document's bytes and text, and refuse files that cannot be a document."""

from __future__ import annotations

from pathlib import Path

from gameday.documents.source import MAX_BYTES
from gameday.errors import DocumentError, DocumentProblem


def read(path: Path) -> bytes:
    """Return a file's bytes, at most one more than a document may have.

    Raises:
        DocumentError: The path is not a regular file, or the file cannot be read.
    """
    try:
        # A read from a device or a pipe may never end.
        if path.exists() and not path.is_file():
            raise DocumentError([_unreadable(str(path), "not a regular file")])
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DocumentError([_unreadable(str(path), f"cannot be read: {error.strerror}")]) from None
    except ValueError:  # a NUL in the name
        raise DocumentError([_unreadable(str(path), "not a file name")]) from None


def decode(source: bytes, file: str) -> str:
    """Return a document's text.

    Args:
        source: The file's bytes, with or without a byte order mark.
        file: The file's name, for the messages.

    Raises:
        DocumentError: The file is too large, or not UTF-8.
    """
    if len(source) > MAX_BYTES:
        raise DocumentError([_unreadable(file, f"larger than {MAX_BYTES // 1024} KiB, the most a document may have")])
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = source[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        byte = source[error.start]
        raise DocumentError(
            [DocumentProblem(file, line, column, "", None, f"byte 0x{byte:02x} is not UTF-8 text", "save it as UTF-8")]
        ) from None


def _unreadable(file: str, message: str) -> DocumentProblem:
    return DocumentProblem(file, None, None, "", None, message)
