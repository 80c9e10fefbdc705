"""File systems of a few kilobytes, which become full, read-only or short of inodes for real."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def tmpfs(folder: Path, options: str) -> Iterator[Path]:
    """Mount one on an empty folder for the block; skips the test where this user may not."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this container can mount no file system: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def remount(folder: Path, options: str) -> None:
    """Change the options of a mounted one."""
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def fill(folder: Path, leave_bytes: int = 0) -> None:
    """Leave so many bytes of room in the folder's file system; what `fill` wrote before goes first."""
    filler = folder / "filler"
    filler.unlink(missing_ok=True)
    found = os.statvfs(folder)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - leave_bytes)
