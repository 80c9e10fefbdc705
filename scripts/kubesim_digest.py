"""Check that kubesim and its tests are as they were when the whole suite last passed.

`check` exits with 0 if they are, and with 1 if something changed; `record` writes the digest of the present files.
`make test-kubesim` records it after the suite has passed, and `.ci/run` runs that suite if `check` exits with 1.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "packages" / "kubesim" / "tests" / "tested.sha256"
# Together with the code, the locked packages and the suite's fixtures decide what the tests find.
FOLDERS = ("packages/kubesim/kubesim", "packages/kubesim/tests")
FILES = ("requirements.lock", "tests/conftest.py")


def digest() -> str:
    """Return the SHA-256 of all files that decide what the suite finds."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    files = [path for path in found if path != RECORD and "__pycache__" not in path.parts]
    total = hashlib.sha256()
    for path in sorted([*files, *(ROOT / name for name in FILES)]):
        total.update(f"{path.relative_to(ROOT).as_posix()}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def main(arguments: list[str]) -> int:
    if arguments == ["record"]:
        RECORD.write_text(f"{digest()}\n", encoding="ascii")
        return 0
    if arguments == ["check"]:
        return int(not RECORD.is_file() or RECORD.read_text(encoding="ascii").strip() != digest())
    print("usage: kubesim_digest.py check|record", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
