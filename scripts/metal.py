"""Set up gameday from the bundle alone, play a game-day and the GPU's tests here, and gather what came of it.

metal.sh runs this in the unpacked bundle with the machine's own Python; it imports only the standard library. The parts
together end within LIMIT_S. One that fails or hangs loses nothing of the others, and Ctrl-C keeps what there is.
"""

from __future__ import annotations

import compileall
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENV = HERE / "env"
PYTHON = ENV / "bin" / "python"
SITE = HERE / "site" / f"{sys.version_info[0]}.{sys.version_info[1]}"
FRAMES = ("numpy", "pandas", "pyarrow")
"""Packages that the machine may have; else they are in the second archive."""
GLIBC = (2, 34)
"""Oldest glibc: Debian 12's Prometheus has the symbol version GLIBC_2.34. The wheels are content with 2.28."""
LIMIT_S = 480.0
"""Eight minutes, the time that a borrowed GPU is ours."""
REHEARSAL_S = 150.0
"""Seconds after which a game-day is broken off. Our own figure: 85 on two busy cores, a burn-in at most 60 more."""
GRACE_S = 30.0
"""Seconds from the SIGINT that breaks a part off to the end of its undo and report; then it is killed."""
BEGAN = time.monotonic()


class MetalError(Exception):
    """The bundle cannot be used here; the message says what to do."""


def main(arguments: Sequence[str]) -> int:
    """Return 0 if every part passed, 1 if one did not, 69 where the bundle cannot be used, 130 after a Ctrl-C."""
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(which, signal.default_int_handler)
    try:
        set_up()
    except KeyboardInterrupt:
        return 130
    except (MetalError, OSError) as error:
        print(f"metal: {error}", file=sys.stderr)
        return 69
    if list(arguments) == ["setup"]:
        return 0
    stamp = time.strftime("%Y%m%d-%H%M%S")
    runs, results = HERE / "reports" / stamp, HERE / f"results-{stamp}"
    results.mkdir()
    page = HERE / "reports" / "metal.md"
    page.unlink(missing_ok=True)
    try:
        return play(arguments, runs, results / "metal.log")
    except KeyboardInterrupt:
        say("stopped")
        return 130
    finally:
        gather(runs, page, results)
        say(f"please send back {results}: {', '.join(sorted(path.name for path in results.iterdir()))}")


def set_up() -> None:
    """Make `env` from the bundle's packages and those of the Python that runs this. Raises MetalError, OSError."""
    name, version = platform.libc_ver()
    if name != "glibc" or tuple(map(int, version.split("."))) < GLIBC or platform.machine() != "x86_64":
        raise MetalError(
            f"the bundle is for x86_64 with glibc {GLIBC[0]}.{GLIBC[1]} or newer, this is {name} {version}"
        )
    if not SITE.is_dir():
        raise MetalError(f"{SITE} is missing: the bundle is for Python 3.11 to 3.13, this is {sys.version.split()[0]}")
    if missing := [wanted for wanted in map(requirement, FRAMES) if not is_met(wanted)]:
        raise MetalError(
            f"this Python has no {', '.join(missing)}: unpack gameday-metal-frames.tar.xz over this folder: "
            f"tar -xf gameday-metal-frames.tar.xz -C {HERE.parent}"
        )
    say(f"setting up for {sys.executable}")
    venv.EnvBuilder(system_site_packages=True, clear=True, symlinks=True).create(ENV)
    (packages,) = ENV.glob("lib/python3*/site-packages")
    # A PREFIX of site's: to what looks for CUDA's libraries there, an environment that this Python is of stays one.
    lines = [str(SITE), f"import site; site.PREFIXES.append({sys.prefix!r})"]
    (packages / "bundle.pth").write_text("\n".join([*lines, ""]), encoding="utf-8")
    program = ENV / "bin" / "gameday"
    program.write_text(f"#!/bin/sh\nPATH='{HERE}/bin':$PATH exec '{PYTHON}' -m gameday.cli \"$@\"\n", encoding="utf-8")
    program.chmod(0o755)
    compileall.compile_dir(SITE, quiet=2, workers=0)


def requirement(name: str) -> str:
    """Return what pyproject.toml asks for of a package, such as `numpy>=2`."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return next(str(one) for one in project["dependencies"] if one.startswith(f"{name}>="))


def is_met(wanted: str) -> bool:
    """Return True if the bundle or this Python has a package of at least a main version."""
    name, least = wanted.split(">=")
    if (SITE / name).is_dir():
        return True
    try:
        return int(importlib.metadata.version(name).split(".")[0]) >= int(least)
    except importlib.metadata.PackageNotFoundError:
        return False


def play(arguments: Sequence[str], runs: Path, log: Path) -> int:
    """Play the parts one after the other; raises KeyboardInterrupt once the part that it meets has ended."""
    rehearse = ["-m", "gameday.cli", "rehearse", "--this-machine", "--reports", str(runs), *arguments]
    tests = ["-m", "pytest", "-v", "-rfE", "-m", "gpu", "-p", "no:cacheprovider", "--confcutdir=tests/gpu", "tests/gpu"]
    statuses = [
        run("the game-day", rehearse, REHEARSAL_S, log),
        run("the GPU's tests", tests, LIMIT_S - GRACE_S, log),
    ]
    return int(any(statuses))


def run(part: str, words: Sequence[str], until_s: float, log: Path) -> int:
    """Run Python with `words` and show its lines with the time, until `until_s` after the start of it all."""
    path = f"{HERE / 'bin'}:{os.environ.get('PATH', os.defpath)}"
    say(f"{part}, at most until {until_s:.0f} s", log)
    process = subprocess.Popen(
        [PYTHON, *words],
        cwd=HERE,
        env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # so that a Ctrl-C reaches it once, from us
    )
    left = max(0.0, until_s - (time.monotonic() - BEGAN))
    timers = [
        threading.Timer(left, process.send_signal, [signal.SIGINT]),
        threading.Timer(left + GRACE_S, end, [process]),
    ]
    for timer in timers:
        timer.start()
    try:
        show(process, log)
    except KeyboardInterrupt:
        say(f"stopping {part}; it may take {GRACE_S:.0f} s", log)
        process.send_signal(signal.SIGINT)
        timers.append(threading.Timer(GRACE_S, end, [process]))
        timers[-1].start()
        show(process, log)
        raise
    finally:
        for timer in timers:
            timer.cancel()
        end(process)
        say(f"{part} ended with status {process.wait()}", log)
    return process.returncode


def show(process: subprocess.Popen[str], log: Path) -> None:
    assert process.stdout
    for line in process.stdout:
        say(line.rstrip("\n"), log)


def end(process: subprocess.Popen[str]) -> None:
    """Kill the process and what it left in its group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def gather(runs: Path, page: Path, results: Path) -> None:
    """Put what there is into the folder to send back; what is missing was not written."""
    histories = sorted(runs.rglob("history.jsonl"), key=lambda path: path.stat().st_mtime)
    if histories:
        for name in ("history.jsonl", "report.html"):
            copy(histories[-1].with_name(name), results)
        with tarfile.open(results / "runs.tar.gz", "w:gz") as archive:
            archive.add(runs, "runs")
    copy(page, results)
    (results / "versions.txt").write_text(versions(), encoding="utf-8")
    kernel = [line for line in output("dmesg").splitlines() if re.search(r"NVRM|nvidia|gameday", line)]
    (results / "kernel.log").write_text("\n".join([*kernel, ""]), encoding="utf-8")


def copy(file: Path, folder: Path) -> None:
    if file.exists():
        shutil.copy(file, folder)


def versions() -> str:
    """Return the machine, the driver, and every Python package as the parts saw them."""
    # The first of a name is the one that is imported.
    listed = (
        "import importlib.metadata as m; found = {d.name: d.version for d in reversed([*m.distributions()])}; "
        "print(*(f'{name} {found[name]}' for name in sorted(found)), sep='\\n')"
    )
    return "\n".join(
        [
            (HERE / "VERSION").read_text(encoding="utf-8").strip(),
            f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()} of {sys.executable}",
            output("nvidia-smi"),
            output(str(PYTHON), "-c", listed),
        ]
    )


def output(*argv: str) -> str:
    """Return a program's output, or why there is none."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no output of {argv[0]}: {error}"
    return done.stdout or done.stderr


def say(line: str, log: Path | None = None) -> None:
    text = f"{time.monotonic() - BEGAN:4.0f} s  {line}"
    print(text, flush=True)
    if log:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
