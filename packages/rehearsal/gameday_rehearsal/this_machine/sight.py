"""The sight of this user on this machine: may a game-day be played here, and what would it miss?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gameday.errors import HostError
from gameday.host.base import GpuSample
from gameday.host.nvml_missing import NO_LIBRARY_HINT
from gameday.host.real import RealHost
from gameday_rehearsal.this_machine.kernel_log import JOURNAL

_DRIVERS_GPUS = "proc/driver/nvidia/gpus"
_JOURNAL_WITHIN_S = 10.0


@dataclass(frozen=True)
class Sight:
    """The GPUs, and sentences about what cannot be done or seen here."""

    gpus: tuple[GpuSample, ...]
    has_gpus: bool
    """True if the driver knows GPUs; a mock NVML shows some of which it does not."""
    computes: bool
    """True if CuPy is installed, too."""
    obstacles: tuple[str, ...]
    """Reasons for which no game-day can be played, each with its remedy."""
    unseen: tuple[str, ...]
    """Blind spots of a game-day that can be played."""


def look(root: Path = Path("/")) -> Sight:
    """Look at the machine with its file system at `root`; nothing is changed or written."""
    host = RealHost(root)
    obstacles: list[str] = []
    unseen = list(_rights(root, host))
    gpus, why = _gpus(host)
    obstacles += [f"{why}; without a GPU, `gameday rehearse` plays on virtual nodes"] if why else []
    if why := _why_not_writable(root):
        obstacles.append(why)
    elif not _opens(root / "dev/kmsg", os.O_RDONLY):
        if _journal_tells():
            unseen.append("/dev/kmsg: the kernel log is read from journald, which is a little later")
        else:
            obstacles.append("the kernel log can be read neither from /dev/kmsg nor from journald: play as root")
    has_gpus = any((root / _DRIVERS_GPUS).glob("*"))
    computes = has_gpus and find_spec("cupy") is not None
    if gpus and not has_gpus:
        unseen.append(
            "a real GPU: the driver knows nothing of those that NVML shows, so it is a mock; QA only reads them"
        )
    elif gpus and not computes:
        unseen.append(
            "how a GPU computes, because CuPy is not installed; QA only reads: pip install -r requirements-gpu.lock"
        )
    return Sight(gpus, has_gpus, computes, tuple(obstacles), tuple(unseen))


def _gpus(host: RealHost) -> tuple[tuple[GpuSample, ...], str]:
    """Return the GPUs, and why no game-day can be played with them; empty if one can."""
    try:
        gpus = tuple(host.gpus())
    except HostError as error:
        why = str(error).replace(NO_LIBRARY_HINT, "install NVIDIA's driver")
        return (), f"no GPU can be seen: {why}"
    if not gpus:
        return (), "NVML counts no GPU"
    if lost := [gpu.index for gpu in gpus if gpu.lost]:
        return gpus, f"GPU {lost[0]} is lost: NVML cannot read it, and only a boot of the machine may bring it back"
    return gpus, ""


def _opens(path: Path, flags: int) -> bool:
    try:
        os.close(os.open(path, flags | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _why_not_writable(root: Path) -> str:
    """Return why the kernel log cannot be written, as every game-day does for a first look; empty if it can."""
    try:
        os.close(os.open(root / "dev/kmsg", os.O_WRONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return (
            "there is no /dev/kmsg: is this a container? Play on the machine itself, or give the container the device"
        )
    except PermissionError as error:
        if os.geteuid() == 0:
            return (
                f"not even root may write to /dev/kmsg ({error.strerror}): `sysctl kernel.printk_devkmsg=on`, and in a "
                "container the device and CAP_SYSLOG"
            )
        return (
            "you may not write to the kernel log, and each game-day begins with a line there: play as root (sudo "
            f"{Path(sys.executable).with_name('gameday')} rehearse --this-machine), or let root run `setfacl -m "
            "u:$USER:rw /dev/kmsg` and `sysctl kernel.dmesg_restrict=0`"
        )
    except OSError as error:
        return f"/dev/kmsg cannot be written: {error.strerror}"
    return ""


def _journal_tells() -> bool:
    """Return True if journald shows this user the kernel's records, as it does to the group systemd-journal."""
    if shutil.which(JOURNAL[0]) is None:
        return False
    argv = [*JOURNAL[:2], "--lines=1", "--output=cat", "--quiet"]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_JOURNAL_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return bool(done.stdout.strip())


def _rights(root: Path, host: RealHost) -> Iterator[str]:
    """Yield which processes are not seen, and so which users of a GPU."""
    if os.geteuid() != 0:
        yield "other users' processes: you are not root, so nobody can tell who uses a GPU"
        return
    yield from host.dcgm_engines().unseen
    hidden = [pid for pid in _pids(root) if not _shows_files(root / "proc" / pid)]
    if hidden:
        more = f" and {len(hidden) - 1} more" if hidden[1:] else ""
        yield f"the open files of process {hidden[0]}{more}: even root may not read them, so a reset is refused"


def _pids(root: Path) -> list[str]:
    return sorted((one.name for one in (root / "proc").iterdir() if one.name.isdecimal()), key=int)


def _shows_files(process: Path) -> bool:
    try:
        os.scandir(process / "fd").close()
    except PermissionError:
        return False
    except OSError:  # it has ended
        return True
    return True
