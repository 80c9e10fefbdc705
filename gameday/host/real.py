"""A GPU node as it is: /dev/kmsg, sysfs, host programs, NVML.

The agent runs in a privileged pod with hostPID. The kernel log, sysfs and
procfs are the host's own there; programs are not, and are reached by entering
the namespaces of the host's process 1.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path

from gameday.errors import HostError
from gameday.host.base import GpuSample, GpuUser, LoadResult, ProgramResult, WorkOrder, WorkReport
from gameday.host.kernel_log import encode_record, render_record
from gameday.host.work import Works

_READ_LOG_WITHIN_S = 10.0
"""A log that grows faster than it is read must not keep the agent for ever."""
_MAX_KMSG_RECORD = 8192
"""CONSOLE_EXT_LOG_MAX of older kernels: a read() with less room fails with EINVAL."""
_MAX_FILE_BYTES = 1024 * 1024
_FOLDERS = ("sys", "proc/sys")
_PLAIN_FILES = ("/etc/nccl.conf",)
"""All that faults may read and write: kernel settings, and NCCL's host-wide configuration."""
_DRIVER = "/run/nvidia/driver"
"""Where the GPU operator mounts the root of its driver container, which then holds nvidia-smi and the host does not."""
_NAMESPACES = ("nsenter", "--target", "1", "--mount", "--uts", "--ipc", "--net", "--pid", "--")


class RealHost:
    """`root` stands for `/` in every path below; tests give a folder of their own."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._works = Works()

    def write_kernel_log(self, record: str) -> None:
        raw = encode_record(record)
        self._refuse_swallowed_writes()
        device = self._root / "dev/kmsg"
        try:
            # One open per record: printk's rate limit (10 in 5 s) counts per open file.
            descriptor = os.open(device, os.O_WRONLY | os.O_CLOEXEC)
            try:
                written = os.write(descriptor, raw)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise HostError(f"cannot write {device}: {error.strerror}; run the agent privileged") from None
        if written != len(raw):
            raise HostError(f"{device} took {written} of {len(raw)} bytes of the record")

    def _refuse_swallowed_writes(self) -> None:
        switch = self._root / "proc/sys/kernel/printk_devkmsg"
        try:
            policy = switch.read_text().strip()
        except OSError:
            return  # kernels before 4.9 have no such switch, and take every write
        if policy == "off":
            raise HostError(f"{switch} is `off`: the kernel drops what is written to /dev/kmsg; set it to `ratelimit`")

    def read_kernel_log(self) -> list[str]:
        device = self._root / "dev/kmsg"
        try:
            descriptor = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise HostError(f"cannot read {device}: {error.strerror}; run the agent privileged") from None
        try:
            return _read_records(descriptor)
        except (OSError, ValueError) as error:
            raise HostError(f"cannot read {device}: {error}") from None
        finally:
            os.close(descriptor)

    def run(self, argv: Sequence[str], timeout_s: float) -> ProgramResult:
        from gameday.host.program import run_program  # noqa: PLC0415 - few roles run programs

        return run_program([*self._way_in(argv[0]), *argv], timeout_s, shown=argv)

    def read_file(self, path: str) -> str:
        descriptor = self._open(path, os.O_RDONLY)
        try:
            raw = os.read(descriptor, _MAX_FILE_BYTES)
        except OSError as error:
            raise HostError(f"cannot read {path}: {error.strerror}") from None
        finally:
            os.close(descriptor)
        return raw.decode("utf-8", "replace")

    def write_file(self, path: str, content: str) -> None:
        raw = content.encode()
        descriptor = self._open(path, os.O_WRONLY | os.O_TRUNC | (os.O_CREAT if path in _PLAIN_FILES else 0))
        try:
            # sysfs takes a value in one write() or not at all.
            written = os.write(descriptor, raw)
        except OSError as error:
            raise HostError(f"cannot write {content[:60]!r} to {path}: {error.strerror}") from None
        finally:
            os.close(descriptor)
        if written != len(raw):
            raise HostError(f"{path} took {written} of {len(raw)} bytes")

    def boot_id(self) -> str:
        path = self._root / "proc/sys/kernel/random/boot_id"
        try:
            return path.read_text().strip()
        except OSError as error:
            raise HostError(f"cannot read {path}: {error.strerror}") from None

    def gpus(self) -> list[GpuSample]:
        from gameday.host.nvml import read_gpus  # noqa: PLC0415 - heavy, and needed by few roles

        return read_gpus()

    def measure_load(self, gpu: int, seconds: float) -> LoadResult:
        from gameday.host.load import measure_load  # noqa: PLC0415 - optional extra

        return measure_load(gpu, seconds)

    def start_work(self, gpu: int, order: WorkOrder) -> WorkReport:
        from gameday.host.processes import begin_work  # noqa: PLC0415 - few roles do work

        return self._works.start(gpu, lambda: begin_work(gpu, order))

    def steer_work(self, gpu: int, utilization: float) -> None:
        self._works.steer(gpu, utilization)

    def work_report(self, gpu: int) -> WorkReport | None:
        return self._works.report(gpu)

    def end_work(self, gpu: int) -> WorkReport | None:
        from gameday.host.processes import end_workers  # noqa: PLC0415

        last = self._works.end(gpu)
        end_workers(self._root / "proc", gpu)
        return last

    def work_runs(self, gpu: int) -> bool:
        from gameday.host.processes import workers  # noqa: PLC0415

        return bool(workers(self._root / "proc", gpu))

    def gpu_users(self, gpu: int) -> tuple[GpuUser, ...]:
        from gameday.host.processes import device_users  # noqa: PLC0415

        pci = next((sample.pci_bus_id for sample in self.gpus() if sample.index == gpu), "")
        if not pci:
            raise HostError(f"no GPU {gpu} whose PCI address NVML tells, so nobody knows who uses it")
        return device_users(self._root / "proc", pci)

    def _way_in(self, program: str) -> tuple[str, ...]:
        """What stands before a program's name so that it is the host's, or the driver container's."""
        if not self._in_container():
            return ()
        in_driver = program == "nvidia-smi" and (self._root / f"proc/1/root{_DRIVER}/usr/bin/nvidia-smi").exists()
        return (*_NAMESPACES, "chroot", _DRIVER) if in_driver else _NAMESPACES

    def _in_container(self) -> bool:
        """Whether process 1 lives in another mount namespace: then it is the host's init, seen through hostPID."""
        try:
            return (self._root / "proc/1/ns/mnt").readlink() != (self._root / "proc/self/ns/mnt").readlink()
        except OSError as error:
            raise HostError(
                f"cannot tell whether this is a container ({error.strerror}: /proc/1/ns/mnt); run the agent as root, "
                "privileged and with hostPID"
            ) from None

    def _open(self, path: str, flags: int) -> int:
        """Open a file of the allow-list; the path that counts is the one after every link is followed."""
        if path in _PLAIN_FILES:
            # The container's own /etc is not the host's; process 1 sees the host's.
            root = self._root / "proc/1/root" if self._in_container() else self._root
            target, flags = root / path.lstrip("/"), flags | os.O_NOFOLLOW
        else:
            target = self._resolve(path)
        try:
            return os.open(target, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise HostError(f"cannot open {path}: {error.strerror}") from None

    def _resolve(self, path: str) -> Path:
        root = self._root.resolve()
        try:
            target = (root / path.lstrip("/")).resolve()
            allowed = path.startswith("/") and any(target.is_relative_to(root / folder) for folder in _FOLDERS)
        except (OSError, ValueError, RuntimeError):  # too long, a NUL, a loop of links
            allowed = False
        if not allowed:
            folders = (f"/{folder}" for folder in _FOLDERS)
            raise HostError(f"{path!r} is outside what the agent may touch: {', '.join((*folders, *_PLAIN_FILES))}")
        return target


def _read_records(descriptor: int) -> list[str]:
    """Every record up to now. Raises OSError, and ValueError for a record of unknown form."""
    lines: list[str] = []
    deadline = time.monotonic() + _READ_LOG_WITHIN_S
    while time.monotonic() < deadline:
        try:
            raw = os.read(descriptor, _MAX_KMSG_RECORD)
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno == errno.EPIPE:  # overwritten while we read; the next read goes on with the oldest left
                continue
            raise
        if not raw:
            break
        lines.append(render_record(raw))
    return lines
