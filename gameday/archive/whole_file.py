"""Files that another program may read at any moment."""

from __future__ import annotations

import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write the file whole or not at all. Raises OSError."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        beside = Path(file.name)
        try:
            file.write(content)
            file.flush()
            beside.chmod(0o644)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
