"""Files that hold secrets: nobody else may read them, and nobody meets half of one."""

from __future__ import annotations

from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write the file whole or not at all, never readable by others, even if we are killed. Raises OSError."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_bytes(content)
    part.replace(path)
