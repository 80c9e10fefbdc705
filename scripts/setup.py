"""Make a fresh checkout ready: the virtual environment, and third-party programs, without root.

The Makefile runs this with the system's Python, 3.11 or newer; it imports only the standard library. A part is skipped
if nothing that it depends on has changed. Programs come from the system's own Debian archive, through apt with a state
folder of our own: apt checks the archive's signatures as always, dpkg-deb unpacks into `.tools`, no service starts.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "packages" / "rehearsal")]

from gameday_rehearsal.programs import BESIDE_KUBELET, PROGRAMS, TOOLS, install_hint, search  # noqa: E402

VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
UV_LOCK = ROOT / "requirements-uv.lock"
GO_LOCK = ROOT / "requirements-go.lock"
CC_LOCK = ROOT / "requirements-cc.lock"
KUBERNETES_WORKER_LOCK = ROOT / "requirements-prefect-kubernetes.lock"
POSTGRES_LOCK = ROOT / "requirements-postgres.lock"
GPU_LOCK = ROOT / "requirements-gpu.lock"
GPU_DEVICE = Path("/dev/nvidiactl")
LINKS = {
    "gameday/flows": "../flows",
    "gameday/tasks": "../tasks",
    "tests/control_plane": "../packages/control-plane/tests",
    "tests/fleet": "../packages/fleet/tests",
    "tests/health": "../packages/node-health/tests",
    "tests/kubesim": "../packages/kubesim/tests",
    "tests/prove": "../packages/prove/tests",
    "tests/rehearsal": "../packages/rehearsal/tests",
}
"""The repository's links to folders, which a source distribution lacks."""
APT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-gameday" / "apt"
"""Package lists and archives, which all checkouts of a user share."""
# Debian stable changes its packages with security updates; a day-old list still names what the archive holds.
LISTS_LAST_S = 86_400
SAID_EVERY_S = 20.0
"""Longest silence of a running step. Our own figure: people begin to wonder after half a minute."""
DPKG_STATUS = Path("/var/lib/dpkg/status")
# Drawn text needs a font; chromium only recommends some.
BROWSER_PACKAGES = ("chromium", "fonts-dejavu-core")


class SetupError(Exception):
    """Set-up cannot go on; the message says what to do."""


def main(parts: Sequence[str]) -> int:
    steps = {
        "venv": make_venv,
        "tools": fetch_tools,
        "browser": fetch_browser,
        "haproxy": fetch_haproxy,
        "node": fetch_node,
        "compiler": fetch_compiler,
        "postgres": fetch_postgres,
        "prefect-kubernetes": fetch_kubernetes_worker,
        "gpu": install_gpu,
    }
    if unknown := [part for part in parts if part not in steps]:
        print(f"setup: unknown part {unknown[0]!r}; parts: {', '.join(steps)}", file=sys.stderr)
        return 64
    restore_links()
    # Each waits for the network most of the time, and none needs another's result.
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(steps[part]) for part in parts]
    failed = 0
    for job in jobs:
        try:
            job.result()
        except SetupError as error:
            print(f"setup: {error}", file=sys.stderr)
            failed = 1
    return failed


def restore_links() -> None:
    """Make the links that lack."""
    for name, target in LINKS.items():
        if not (ROOT / name).exists():
            (ROOT / name).symlink_to(target)


def make_venv() -> None:
    """Make `.venv` with exactly the lock's packages, hashes checked, with this project and its packages editable."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this runs before anything else has checked it
        raise SetupError(f"Python 3.11 or newer is needed, {sys.executable} is {sys.version.split()[0]}")
    stamp = VENV / ".setup-stamp"
    # Interpreter and path are part of it, because a venv survives no change of either.
    projects = [ROOT, *sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))]
    ours = [(project / "pyproject.toml").read_bytes() for project in projects]
    wanted = _digest(LOCK.read_bytes(), *ours, sys.version, sys.base_prefix, str(VENV))
    if VENV_PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    uv = fetch_uv()
    stamp.unlink(missing_ok=True)
    # Not sys.executable: in an activated environment it is the interpreter that is about to be removed.
    python = getattr(sys, "_base_executable", sys.executable)
    with step(say, f"making .venv with the {_locked(LOCK)} packages of requirements.lock"):
        run([uv, "--quiet", "venv", "--clear", "--no-python-downloads", "--python", python, VENV])
        pip: list[str | Path] = [uv, "--quiet", "pip", "install", "--python", VENV_PYTHON, "--no-deps"]
        # --no-deps: the lock is complete, so nothing is left to resolve.
        # Compiled here; otherwise every worker of the first test run compiles the same modules for itself.
        run([*pip, "--require-hashes", "--compile-bytecode", "--requirement", LOCK])
        run([*pip, "--no-build-isolation", *(f"--editable={project}" for project in projects)])
    stamp.write_text(wanted)


def fetch_uv() -> Path:
    """Install the pinned uv into `.tools/uv` and return its program."""
    program = TOOLS / "uv" / "bin" / "uv"
    stamp = TOOLS / "uv" / ".setup-stamp"
    wanted = _digest(UV_LOCK.read_bytes())
    if program.exists() and stamp.exists() and stamp.read_text() == wanted:
        return program
    shutil.rmtree(TOOLS / "uv", ignore_errors=True)
    with step(say, "fetching uv into .tools"), tempfile.TemporaryDirectory() as folder:
        run(
            [
                *_pip(Path(folder)),
                "--quiet",
                "--disable-pip-version-check",
                "--no-input",
                "install",
                "--no-deps",
                "--require-hashes",
                "--only-binary=:all:",
                "--root-user-action=ignore",
                f"--target={TOOLS / 'uv'}",
                f"--requirement={UV_LOCK}",
            ]
        )
    stamp.write_text(wanted)
    return program


def fetch_go() -> Path:
    """Install the pinned Go into `.tools/go` and return its program. Raises SetupError."""
    return _fetch_wheels("Go", GO_LOCK, TOOLS / "go", "go/bin/go")


def fetch_compiler() -> None:
    """Fetch a C compiler for the tests' mock of NVML into `.tools/zig`, if the system has none. Raises SetupError."""
    if shutil.which("cc") is None:
        _fetch_wheels("Zig", CC_LOCK, TOOLS / "zig", "ziglang/zig")


def fetch_postgres() -> None:
    """Fetch a PostgreSQL server for the tests of Prefect on one into `.tools/postgres`, unless the system has one."""
    if shutil.which("initdb") or list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        return
    try:
        _fetch_wheels("PostgreSQL", POSTGRES_LOCK, TOOLS / "postgres", "pgserver/pginstall/bin/initdb")
    except SetupError as error:
        say(f"no PostgreSQL: {error}\n       the tests of a Prefect server on PostgreSQL will be skipped")


def fetch_kubernetes_worker() -> None:
    """Fetch Prefect's worker for Kubernetes, for the lab's test, into a folder beside `.venv`'s packages.

    Raises SetupError.
    """
    folder = TOOLS / "prefect-kubernetes"
    _fetch_wheels("Prefect's worker for Kubernetes", KUBERNETES_WORKER_LOCK, folder, "prefect_kubernetes/worker.py")


def install_gpu() -> None:
    """Install CuPy with CUDA's libraries into `.venv`, if this machine has a GPU; gigabytes. Raises SetupError."""
    stamp = VENV / ".gpu-stamp"
    wanted = _digest(GPU_LOCK.read_bytes())
    if not GPU_DEVICE.exists() or (stamp.exists() and stamp.read_text() == wanted):
        return
    uv = fetch_uv()
    pip: list[str | Path] = [uv, "--quiet", "pip", "install", "--python", VENV_PYTHON, "--no-deps"]
    with step(say, f"installing {_locked(GPU_LOCK)} packages of requirements-gpu.lock, some 3.5 GB, into .venv"):
        run([*pip, "--require-hashes", "--requirement", GPU_LOCK])
    stamp.write_text(wanted)


def _fetch_wheels(name: str, lock: Path, folder: Path, program: str) -> Path:
    """Install a lock's packages into a folder, unless they are there; return one of their files. Raises SetupError."""
    stamp = folder / ".setup-stamp"
    wanted = _digest(lock.read_bytes())
    if (folder / program).exists() and stamp.exists() and stamp.read_text() == wanted:
        return folder / program
    uv = fetch_uv()
    shutil.rmtree(folder, ignore_errors=True)
    pip: list[str | Path] = [uv, "--quiet", "pip", "install", "--python", sys.executable, "--target", folder]
    with step(say, f"fetching {name} into .tools"):
        run([*pip, "--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", lock], quiet=True)
    stamp.write_text(wanted)
    return folder / program


def _pip(folder: Path) -> list[str | Path]:
    """Return the command of this Python's pip, or of Debian's wheel of pip, unpacked into `folder`."""
    if _succeeds([sys.executable, "-m", "pip", "--version"]):
        return [sys.executable, "-m", "pip"]
    if not _has_apt():
        raise SetupError("this Python has no pip; install your system's python3-pip package")
    unpack(download(["python3-pip-whl"], resolve=False), folder)
    wheels = sorted(folder.glob("usr/share/python-wheels/pip-*.whl"))
    if not wheels:
        raise SetupError("Debian's python3-pip-whl holds no pip; install your system's python3-pip package")
    return [sys.executable, wheels[-1] / "pip"]


def fetch_tools() -> None:
    """Fetch Prometheus, Alertmanager and kubectl into `.tools`, unless they are on PATH or there already."""
    names = ("prometheus", "promtool", "alertmanager", "amtool", "kubectl")
    if missing := [name for name in names if search(name) is None]:
        fetch_programs(missing)


def fetch_programs(missing: Sequence[str]) -> None:
    """Fetch some of PROGRAMS into `.tools`. Raises SetupError."""
    _need_apt(missing)
    packages = sorted({PROGRAMS[name].debian for name in missing})
    with step(say, f"fetching {', '.join(packages)} into .tools"):
        unpack(download(packages, resolve=False), TOOLS / "root")
    for name in missing:
        program = _first_program(TOOLS / "root" / "usr" / "bin", PROGRAMS[name].names)
        if program is None:
            raise SetupError(f"Debian's {PROGRAMS[name].debian} brought no {name}: {install_hint(name)}")
        if name == "alertmanager":
            _relocate(program)
        else:
            _link(program)


def fetch_browser() -> None:
    """Fetch Chromium for the tests that look at the report; without it they skip and say so."""
    if search("chromium") is not None:
        return
    try:
        _need_apt(["chromium"])
        root = TOOLS / "browser"
        with step(say, "fetching chromium and the libraries this system lacks into .tools"):
            unpack(download(BROWSER_PACKAGES, resolve=True), root)
            _wrap_chromium(root)
    except SetupError as error:
        say(f"no browser: {error}\n       the browser tests will be skipped")


def fetch_haproxy() -> None:
    """Fetch HAProxy for a lab of several API servers; without it a lab has one, and says what to do for more."""
    if search("haproxy") is not None:
        return
    try:
        _need_apt(["haproxy"])
        root = TOOLS / "haproxy"
        with step(say, "fetching haproxy and the libraries this system lacks into .tools"):
            unpack(download(["haproxy"], resolve=True), root)
        _wrap(root / "usr/sbin/haproxy", root, "-v")
    except SetupError as error:
        say(f"no haproxy: {error}\n       the lab will have one API server")


def fetch_node() -> None:
    """Fetch what a lab's real node runs beside kubelet; without it a lab has none, and says what to do for one."""
    root = TOOLS / "node"
    if all(map(search, BESIDE_KUBELET)):
        return
    try:
        _need_apt(BESIDE_KUBELET)
        with step(say, "fetching containerd, runc and what a real node needs beside them into .tools"):
            unpack(download(sorted({PROGRAMS[name].debian for name in BESIDE_KUBELET}), resolve=True), root)
        for program in ("usr/bin/containerd", "usr/bin/ctr", "usr/sbin/runc", "usr/sbin/nft"):
            _wrap(root / program, root, "--version")
        _link(root / "bin/busybox")  # not a script: it goes into an image
    except SetupError as error:
        say(f"no node: {error}\n       the lab will have virtual nodes only")


def _relocate(program: Path) -> None:
    """Make Debian's Alertmanager start without the templates of its package, which it looks for in /usr/share.

    The path is compiled in and no flag changes it. A copy of the program gets a path of the same length without the
    leading slash, and a wrapper that starts it where that path leads: the unpacked package.
    """
    copy = program.with_name(f"{program.name}.relocated")
    copy.write_bytes(program.read_bytes().replace(b"/usr/share/prometheus", b"usr//share/prometheus"))
    copy.chmod(0o755)
    wrapper = TOOLS / "bin" / program.name
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(f'#!/bin/sh\ncd "${{0%/*}}/../root" && exec usr/bin/{copy.name} "$@"\n')
    wrapper.chmod(0o755)


def _wrap_chromium(root: Path) -> None:
    (root / "fonts.conf").write_text(
        f"<fontconfig><dir>{root}/usr/share/fonts</dir><dir>/usr/share/fonts</dir>"
        f"<cachedir>{root}/fontcache</cachedir></fontconfig>\n"
    )
    _wrap(root / "usr/lib/chromium/chromium", root, "--version", f"export FONTCONFIG_FILE='{root}/fonts.conf'\n")


def _wrap(program: Path, root: Path, asks_version: str, exports: str = "") -> None:
    """Link an unpacked program into the tool folder, by a script that names the libraries unpacked beside it.

    Raises SetupError if the program does not start.
    """
    if not program.exists():
        raise SetupError(f"Debian's {program.name} brought no {program}: {install_hint(program.name)}")
    libraries = sorted({str(path.parent) for path in root.glob("**/*.so*") if "chromium" not in path.parts})
    wrapper = TOOLS / "bin" / program.name
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(f"#!/bin/sh\nexport LD_LIBRARY_PATH='{':'.join(libraries)}'\n{exports}exec '{program}' \"$@\"\n")
    wrapper.chmod(0o755)
    if not _succeeds([wrapper, asks_version]):
        wrapper.unlink()
        raise SetupError(f"the unpacked {program.name} does not start: {install_hint(program.name)}")


def download(packages: Sequence[str], *, resolve: bool) -> list[Path]:
    """Fetch .deb files into the user's cache; `resolve` adds the dependencies that this system lacks.

    Raises SetupError.
    """
    apt = ["apt-get", "-qq", *_apt_options()]
    act = ["--yes", "--no-install-recommends", "--download-only", "install"] if resolve else ["download"]
    # Another checkout's set-up may be using the same folder.
    with (APT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _update_lists(apt)
        archives = APT / "archives" / _digest(run([*apt, "--print-uris", *act, *packages], quiet=True))
        complete = archives / ".complete"
        if not complete.exists():
            (archives / "partial").mkdir(parents=True, exist_ok=True)
            run([*apt, "-o", f"Dir::Cache::archives={archives}", *act, *packages], cwd=archives, quiet=True)
            complete.touch()
    return sorted(archives.glob("*.deb"))


def _apt_options() -> list[str]:
    state, cache = APT / "state", APT / "cache"
    for folder in (state / "lists/partial", cache / "archives/partial"):
        folder.mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State": state,
        "Dir::State::status": DPKG_STATUS,
        "Dir::Cache": cache,
        "Debug::NoLocking": "true",  # dpkg's own lock is root's; nothing is installed
        "APT::Sandbox::User": "root",  # as root: do not hand our folders to the _apt user
        "APT::Keep-Downloaded-Packages": "true",
    }
    return [word for key, value in options.items() for word in ("-o", f"{key}={value}")]


def _update_lists(apt: Sequence[str]) -> None:
    fresh = APT / "lists-updated"
    if fresh.exists() and time.time() - fresh.stat().st_mtime < LISTS_LAST_S:
        return
    # Some images' hooks clean root's own cache after an update and fail without root; apt has done its work by
    # then, so what counts is that there are lists.
    done = subprocess.run([*map(str, apt), "update"], capture_output=True, text=True, check=False)
    if not list((APT / "state/lists").glob("*Packages*")):
        raise SetupError(f"apt-get update brought no package lists: {done.stderr.strip()[-500:]}")
    if done.returncode == 0:
        fresh.touch()


def unpack(archives: Sequence[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for archive in archives:
        run(["dpkg-deb", "--extract", archive, folder])


def run(argv: Sequence[str | Path], *, cwd: Path = ROOT, quiet: bool = False) -> str:
    """Run a program to its end and return its output if `quiet`. Raises SetupError when it fails."""
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.PIPE if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = f": {(done.stdout + done.stderr).strip()[-1000:]}" if quiet else "; see above"
        raise SetupError(f"`{Path(str(argv[0])).name}` failed with status {done.returncode}{said}")
    return done.stdout or ""


def say(line: str) -> None:
    print(f"setup: {line}", flush=True)


@contextmanager
def step(says: Callable[[str], None], what: str) -> Iterator[None]:
    """Say what begins, every 20 seconds that it still runs, and how long it took."""
    began, ended = time.monotonic(), threading.Event()

    def go_on() -> None:
        while not ended.wait(SAID_EVERY_S):
            says(f"{what}: {time.monotonic() - began:.0f} s so far")

    says(what)
    talking = threading.Thread(target=go_on, daemon=True)
    talking.start()
    try:
        yield
    finally:
        ended.set()
        talking.join()
    says(f"{what}: done after {time.monotonic() - began:.0f} s")


def _locked(lock: Path) -> int:
    """Return the number of packages in a lock."""
    return sum("==" in line for line in lock.read_text(encoding="utf-8").splitlines() if not line.startswith(" "))


def _succeeds(argv: Sequence[str | Path]) -> bool:
    words = [str(word) for word in argv]
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _has_apt() -> bool:
    return all(map(shutil.which, ("apt-get", "dpkg-deb"))) and DPKG_STATUS.exists()


def _need_apt(names: Sequence[str]) -> None:
    if not _has_apt():
        hints = "\n  ".join(f"{name}: {install_hint(name)}" for name in names)
        raise SetupError(f"not on PATH, and this system has no apt to fetch them with:\n  {hints}")


def _first_program(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if os.access(folder / name, os.X_OK)), None)


def _link(program: Path) -> None:
    link = TOOLS / "bin" / program.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(program, link.parent))


def _digest(*parts: bytes | str) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part.encode() if isinstance(part, str) else part).digest())
    return total.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["venv", "tools"]))
