"""The C compiler of this machine, for the small libraries that tests load: `cc`, else Zig's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from gameday_rehearsal.programs import TOOLS

_ZIG = TOOLS / "zig/ziglang/zig"


def compile_c(source: Path, target: Path, *options: str) -> Path:
    """Compile a file of C, into a folder that is made, and return what came of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    argv = [*_compiler(), "-std=gnu11", "-o", str(target), str(source), *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def _compiler() -> list[str]:
    if found := shutil.which("cc"):
        return [found]
    assert _ZIG.exists(), "no C compiler: `make compiler` fetches one"
    return [str(_ZIG), "cc"]
