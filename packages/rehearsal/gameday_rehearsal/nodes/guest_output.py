"""A guest's output as a bounded file, with a UTC stamp before each line."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

MOST_BYTES_A_START = 16 * 1024 * 1024
_MOST_BYTES = 4 * MOST_BYTES_A_START
_LONGEST_LINE = 16_384  # the container runtimes' own limit of one log line
_CHUNK = 65_536
_BREATH_S = 0.01
"""The pause after a chunk that is thrown away, so that a flood leaves the nodes some processor: some MB/s are read."""


class GuestOutput:
    """The file, kept when the guest is started again. It has only whole lines, so that a reader may stop anywhere.

    `flooded`: the present or last process has printed more than is kept for one.
    """

    def __init__(self, path: Path) -> None:
        """Make an empty file. Raises OSError."""
        self.path = path
        self.flooded = False
        path.write_bytes(b"")
        self._size = 0
        self._room = 0

    async def pump(self, stream: asyncio.StreamReader) -> None:
        """Keep what a process prints until it ends; read the excess and throw it away, so that it never blocks."""
        self.flooded = False
        self._room = min(MOST_BYTES_A_START, _MOST_BYTES - self._size)
        rest = b""
        try:
            while chunk := await stream.read(_CHUNK):
                if self.flooded:
                    await asyncio.sleep(_BREATH_S)
                    continue
                *lines, rest = (rest + chunk).split(b"\n")
                while len(rest) > _LONGEST_LINE:
                    lines.append(rest[:_LONGEST_LINE])
                    rest = rest[_LONGEST_LINE:]
                self._append(lines)
        finally:
            if rest and not self.flooded:
                self._append([rest])

    def read(self, start: int, most: int) -> tuple[bytes, int]:
        """Return whole lines from a byte on, and the position after them. Raises OSError."""
        with self.path.open("rb") as file:
            file.seek(start)
            found = file.read(most)
        whole = found[: found.rfind(b"\n") + 1]
        return whole, start + len(whole)

    def _append(self, lines: list[bytes]) -> None:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
        text = b"".join(stamp + line + b"\n" for line in lines)
        if len(text) > self._room:
            text = text[: text.rfind(b"\n", 0, self._room) + 1]
            self.flooded = True
        try:
            with self.path.open("ab") as file:
                file.write(text)
        except OSError:  # a full disk must not make the guest wait for us
            self.flooded = True
        self._room -= len(text)
        self._size += len(text)
