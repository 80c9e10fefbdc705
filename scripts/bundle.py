"""Write what a GPU machine without internet needs into a folder: `make bundle`. docs/metal.md says how it is used.

gameday-metal.tar.xz has gameday, Prometheus, Alertmanager, the GPU's tests, and for each of PYTHONS the locked packages
as they are installed. gameday-metal-frames.tar.xz has NumPy, pandas and pyarrow, for a machine that lacks them. Hashes
are checked against requirements.lock as everywhere; files are left out after that, and none is changed. It imports only
the standard library.
"""

from __future__ import annotations

import hashlib
import lzma
import platform
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

import setup
from metal import FRAMES
from setup import LOCK, ROOT, VENV_PYTHON, SetupError, step

from gameday_rehearsal.programs import TOOLS

PYTHONS = ("3.11", "3.12", "3.13")
PLATFORM = "x86_64-manylinux_2_28"
LIMIT = 60_000_000
"""Largest size of an archive, bytes: what was asked for; some ways to borrow a GPU take 64 MiB."""
WINDOW = 128 << 20
"""Bytes in which xz finds a file's like, and the memory of unpacking. The largest file, libarrow.so, has 49 MB."""
MTIME = 315_532_800
"""Time of every file: 1980, as in wheels, so that the same commit makes the same archive."""
PRESET = 6
"""xz's own default. 3 takes half the time, and makes files an eighth larger, which is too much."""
LEFT_OUT = (
    "bin/*",
    "*/__pycache__/*",
    "*/tests/*",
    "kubernetes/aio/*",  # the client for asyncio, 41 MB of source
    "prefect/server/ui*/*",  # Prefect's pages
    # Arrow's headers, and its clients of clouds and other servers.
    *(f"pyarrow/{name}" for name in ("include/*", "src/*", "*flight*", "*s3*", "*gcsfs*", "*azurefs*", "*hdfs*")),
)
"""Files of packages that no rehearsal reads, as patterns."""
RELOCATED = "root/usr/bin/prometheus-alertmanager.relocated"
PROGRAMS = {
    "bin/prometheus": "root/usr/bin/prometheus",
    "bin/prometheus-alertmanager": "bin/prometheus-alertmanager",
    RELOCATED: RELOCATED,
}
"""Name in the bundle: file in the tool folder, as scripts/setup.py fetches them."""

Files = dict[str, Path]
"""Name in the bundle: file here."""


def main(into: Path) -> int:
    try:
        with tempfile.TemporaryDirectory(dir=TOOLS) as folder:
            return write(into, Path(folder))
    except SetupError as error:
        print(f"bundle: {error}", file=sys.stderr)
        return 1


def write(into: Path, folder: Path) -> int:
    """Write both archives, with `folder` for what is installed meanwhile; 1 if one is too large. Raises SetupError."""
    if platform.machine() != "x86_64":
        raise SetupError(
            f"a bundle is for x86_64 and made there, because it takes programs along; this is {platform.machine()}"
        )
    lock = folder / "requirements.txt"
    lock.write_text(needed(), encoding="utf-8")
    with step(say, f"installing for Python {', '.join(PYTHONS)}"):
        packages = {name: file for version in PYTHONS for name, file in installed(version, lock, folder).items()}
    frames = {name: file for name, file in packages.items() if is_frames(name)}
    revision = setup.run(["git", "describe", "--always", "--dirty"], quiet=True) if (ROOT / ".git").exists() else ""
    (folder / "VERSION").write_text(f"gameday's bundle of {revision}", encoding="utf-8")
    base = {
        **{name: file for name, file in packages.items() if name not in frames},
        **dict(programs()),
        **dict(tests()),
        "VERSION": folder / "VERSION",
    }
    archives = {into / "gameday-metal.tar.xz": base, into / "gameday-metal-frames.tar.xz": frames}
    into.mkdir(parents=True, exist_ok=True)
    with step(say, "compressing with xz"), ThreadPoolExecutor() as pool:
        list(pool.map(pack, archives, archives.values()))
    sizes = {archive: archive.stat().st_size for archive in archives}
    for archive, size in sizes.items():
        print(f"{archive}  {size / 1e6:.1f} MB{', too large' * (size > LIMIT)}  sha256 {digest(archive)}")
    return int(max(sizes.values()) > LIMIT)


def needed() -> str:
    """Return the part of requirements.lock that the distributions and the GPU's tests need. Raises SetupError."""
    projects = [ROOT / "pyproject.toml", *sorted(ROOT.glob("packages/*/pyproject.toml"))]
    options = ["--quiet", "--universal", "--python-version", PYTHONS[0], "--no-annotate", "--no-header"]
    command: list[str | Path] = [setup.fetch_uv(), "pip", "compile", *options, "--constraint", LOCK, *projects]
    compiled = setup.run([*command, "--group", "pyproject.toml:bundle"], quiet=True)
    names = set(re.findall(r"^([a-z0-9._-]+)==", compiled, re.M))
    # A package begins at the left, its hashes do not.
    parts = re.split(r"^(?=[a-z0-9])", LOCK.read_text(encoding="utf-8"), flags=re.M)
    locked = {part.split("==")[0]: part for part in parts}
    if missing := names - locked.keys():
        raise SetupError(f"requirements.lock lacks {', '.join(sorted(missing))}: run `make lock`")
    return "".join(locked[name] for name in sorted(names))


def installed(version: str, lock: Path, folder: Path) -> Files:
    """Install the lock's packages and ours as for one Python, and return their files. Raises SetupError."""
    site = folder / version
    pip: list[str | Path] = [setup.fetch_uv(), "--quiet", "pip", "install", "--python", VENV_PYTHON, "--no-deps"]
    pip += ["--target", site]
    target = ["--python-version", version, "--python-platform", PLATFORM]
    setup.run([*pip, *target, "--only-binary", ":all:", "--require-hashes", "--requirement", lock])
    # Built by the back end in .venv, which comes from the same lock.
    setup.run([*pip, "--no-build-isolation", ROOT, *sorted(ROOT.glob("packages/*/"))])
    files = {str(file.relative_to(site)): file for file in site.rglob("*") if file.is_file()}
    return {
        f"site/{version}/{name}": file
        for name, file in files.items()
        if not any(fnmatch(name, pattern) for pattern in LEFT_OUT)
    }


def is_frames(name: str) -> bool:
    """Return True for a file of one of FRAMES, as in site/3.12/numpy, numpy.libs and numpy-2.4.6.dist-info."""
    return re.split(r"[.-]", name.split("/")[2])[0] in FRAMES


def programs() -> Iterator[tuple[str, Path]]:
    """Yield the files of Prometheus and Alertmanager, fetched into the tool folder. Raises SetupError."""
    # Not those that this system has on PATH: of them nobody knows which libraries and files they need.
    if not all((TOOLS / source).exists() for source in PROGRAMS.values()):
        setup.fetch_programs(["prometheus", "alertmanager"])
    for name, source in PROGRAMS.items():
        yield name, TOOLS / source
    for file in (TOOLS / "root/usr/share/prometheus/alertmanager").rglob("*"):
        if file.is_file():
            yield str(file.relative_to(TOOLS)), file


def tests() -> Iterator[tuple[str, Path]]:
    """Yield the files of the GPU's tests, their configuration, and the scripts of the bundle."""
    for name in ("metal.py", "metal.sh"):
        yield name, ROOT / "scripts" / name
    for file in (ROOT / "pyproject.toml", ROOT / "tests/__init__.py", *(ROOT / "tests/gpu").glob("*.py")):
        yield str(file.relative_to(ROOT)), file


def pack(archive: Path, files: Files) -> None:
    """Write an archive with files that are alike side by side, and equal ones once."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": PRESET, "dict_size": WINDOW}]
    seen: dict[str, str] = {}
    with (
        lzma.open(archive, "wb", check=lzma.CHECK_SHA256, filters=filters) as compressed,
        tarfile.open(fileobj=compressed, mode="w|") as tar,
    ):
        for inside in sorted(files, key=lambda one: (re.sub(r"^site/[^/]+/|cpython-3\d+|cp3\d+", "", one), one)):
            entry = tarfile.TarInfo(f"gameday-metal/{inside}")
            entry.mode, entry.mtime = files[inside].stat().st_mode & 0o755, MTIME
            content = digest(files[inside])
            if content in seen:
                entry.type, entry.linkname = tarfile.LNKTYPE, seen[content]
                tar.addfile(entry)
                continue
            seen[content] = entry.name
            entry.size = files[inside].stat().st_size
            with files[inside].open("rb") as file:
                tar.addfile(entry, file)


def digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def say(line: str) -> None:
    print(f"bundle: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
