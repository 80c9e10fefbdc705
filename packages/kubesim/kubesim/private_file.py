"""Files that hold secrets: only their owner may read them, and they are written whole or not at all."""

from __future__ import annotations

from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write the file whole or not at all, even if we are killed, and never readable by others. Raises OSError."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_bytes(content)
    part.replace(path)
