"""A real GPU node, reached by /dev/kmsg, sysfs, host programs and NVML.

The agent runs in a privileged pod with hostPID. There the kernel log, sysfs and procfs are the host's own. Programs are
not, so the agent runs them in the namespaces of the host's process 1.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gameday.errors import HostError
from gameday.host.base import (
    ApiServer,
    DcgmEngines,
    GpuSample,
    GpuUser,
    Listener,
    LoadResult,
    ProgramResult,
    WorkOrder,
    WorkReport,
)
from gameday.host.kernel_log import encode_record, render_record
from gameday.host.work import WorkByGpu

_READ_LOG_TIMEOUT_S = 10.0
"""Time-out for reading a log that grows faster than it is read."""
_MAX_KMSG_RECORD = 8192
"""CONSOLE_EXT_LOG_MAX of older kernels, in bytes: a read() with a smaller buffer fails with EINVAL."""
_MAX_FILE_BYTES = 1024 * 1024
_FOLDERS = ("sys", "proc/sys")
_PLAIN_FILES = ("/etc/nccl.conf",)
"""The allow-list of files that faults may read and write: kernel settings, and NCCL's host-wide configuration."""
_DRIVER = "/run/nvidia/driver"
"""The root of the GPU operator's driver container, which has nvidia-smi if the host has none."""
_NAMESPACES = ("nsenter", "--target", "1", "--mount", "--uts", "--ipc", "--net", "--pid", "--")
_IN_A_POD = "KUBERNETES_SERVICE_HOST"
"""A variable that every kubelet gives every container (kubernetes.io, Accessing the API from a Pod)."""


class RealHost:
    """The machine that this process runs on, or that its pod runs on."""

    is_virtual = False

    def __init__(self, root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> None:
        """Use the machine with its file system at `root`; tests pass a folder. `environment` is the container's."""
        self._root = root
        self._environment = environment
        self._works = WorkByGpu()

    def write_kernel_log(self, record: str) -> None:
        raw = encode_record(record)
        self._require_open_log()
        device = self._root / "dev/kmsg"
        try:
            # The device is opened for each record: printk's rate limit (10 in 5 s) is for each open file.
            descriptor = os.open(device, os.O_WRONLY | os.O_CLOEXEC)
            try:
                written = os.write(descriptor, raw)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise HostError(f"cannot write {device}: {error.strerror}; run the agent privileged") from None
        if written != len(raw):
            raise HostError(f"{device} took {written} of {len(raw)} bytes of the record")

    def _require_open_log(self) -> None:
        setting = self._root / "proc/sys/kernel/printk_devkmsg"
        try:
            policy = setting.read_text().strip()
        except OSError:
            return  # kernels before 4.9 have no such setting
        if policy == "off":
            raise HostError(
                f"{setting} is `off`: the kernel lets nobody open /dev/kmsg: `sysctl kernel.printk_devkmsg=ratelimit`; "
                "if it refuses that, the setting is on the kernel's command line"
            )

    def read_kernel_log(self) -> list[str]:
        self._require_open_log()
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

    def run(self, argv: Sequence[str], timeout_s: float, ended: threading.Event | None = None) -> ProgramResult:
        from gameday.host.program import run_program  # noqa: PLC0415 - few roles run programs

        return run_program([*self._host_prefix(argv[0]), *argv], timeout_s, shown=argv, ended=ended)

    def read_file(self, path: str) -> str:
        try:
            # One read() of a file that the kernel makes up line by line ends after a page.
            with os.fdopen(self._open(path, os.O_RDONLY), "rb") as file:
                return file.read(_MAX_FILE_BYTES).decode("utf-8", "replace")
        except OSError as error:
            raise HostError(f"cannot read {path}: {error.strerror}") from None

    def write_file(self, path: str, content: str) -> None:
        raw = content.encode()
        descriptor = self._open(path, os.O_WRONLY | os.O_TRUNC | (os.O_CREAT if path in _PLAIN_FILES else 0))
        try:
            # sysfs takes a value only in one write().
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
        from gameday.host.nvml import read_gpus  # noqa: PLC0415 - large, and few roles need it

        return read_gpus(host_root=self._root / "proc/1/root")

    def pod_gpus(self, namespace: str, pod: str) -> tuple[str, ...]:
        from gameday.host.pod_resources import SOCKET, gpu_ids  # noqa: PLC0415 - a client that only canaries need

        # With hostPID, process 1 is the host's; without it, its root has no such socket.
        return gpu_ids(self._root / "proc/1/root" / SOCKET, namespace, pod)

    def measure_load(self, gpu: int, seconds: float) -> LoadResult:
        from gameday.host.load import measure_load  # noqa: PLC0415 - optional extra

        return measure_load(gpu, seconds)

    def start_work(self, gpu: int, order: WorkOrder) -> WorkReport:
        from gameday.host.processes import start_worker  # noqa: PLC0415 - few roles do work

        return self._works.start(gpu, lambda: start_worker(gpu, order))

    def steer_work(self, gpu: int, utilization: float) -> None:
        self._works.steer(gpu, utilization)

    def work_report(self, gpu: int) -> WorkReport | None:
        return self._works.report(gpu)

    def end_work(self, gpu: int) -> WorkReport | None:
        from gameday.host.processes import end_workers  # noqa: PLC0415

        last = self._works.end(gpu)
        end_workers(self._root / "proc", gpu)
        return last

    def has_work(self, gpu: int) -> bool:
        from gameday.host.processes import workers  # noqa: PLC0415

        return bool(workers(self._root / "proc", gpu))

    def gpu_users(self, gpu: int) -> tuple[GpuUser, ...]:
        from gameday.host.processes import device_users  # noqa: PLC0415

        pci = next((sample.pci_bus_id for sample in self.gpus() if sample.index == gpu), "")
        if not pci:
            raise HostError(f"NVML shows no PCI address of a GPU {gpu}, so the GPU's users cannot be found")
        return device_users(self._root / "proc", pci)

    def dcgm_engines(self) -> DcgmEngines:
        from gameday.host.processes import dcgm_engines  # noqa: PLC0415

        return dcgm_engines(self._root / "proc")

    def api_server(self) -> ApiServer:
        from gameday.host.api_account import IN_CLUSTER_FOLDER, in_cluster  # noqa: PLC0415 - few roles use the API

        return in_cluster(self._environment, self._root / IN_CLUSTER_FOLDER)

    def own_address(self) -> str:
        try:
            return socket.gethostbyname(socket.gethostname())  # the kubelet writes it into the pod's /etc/hosts
        except OSError as error:
            raise HostError(f"this pod does not know its own address: {error}") from None

    def listen(self, interface: str) -> Listener:
        from gameday.host.host_sockets import listen  # noqa: PLC0415 - few roles use the host's interfaces

        return listen(self._root / "proc", interface)

    def connect(self, interface: str, address: str, port: int, timeout_s: float) -> socket.socket:
        from gameday.host.host_sockets import connect  # noqa: PLC0415

        return connect(self._root / "proc", interface, (address, port), timeout_s)

    def _host_prefix(self, program: str) -> tuple[str, ...]:
        """Return the arguments to put before a program to run it on the host, or in the driver container."""
        if not self._is_in_container():
            return ()
        in_driver = program == "nvidia-smi" and (self._root / f"proc/1/root{_DRIVER}/usr/bin/nvidia-smi").exists()
        return (*_NAMESPACES, "chroot", _DRIVER) if in_driver else _NAMESPACES

    def _is_in_container(self) -> bool:
        """Return True if process 1 has another mount namespace: then it is the host's init, seen through hostPID.

        Some virtual machines show not even root the namespaces of their process 1. Nobody could enter those, so outside
        a pod they do not matter: this process is on the machine itself.
        """
        try:
            return (self._root / "proc/1/ns/mnt").readlink() != (self._root / "proc/self/ns/mnt").readlink()
        except OSError as error:
            if isinstance(error, PermissionError) and _IN_A_POD not in self._environment:
                return False
            raise HostError(
                f"cannot find out whether this is a container ({error.strerror}: /proc/1/ns/mnt); run the agent as "
                "root, privileged and with hostPID"
            ) from None

    def _open(self, path: str, flags: int) -> int:
        """Open a file of the allow-list. The path is compared after every link has been followed."""
        if path in _PLAIN_FILES:
            # The container has its own /etc; process 1 sees the host's.
            root = self._root / "proc/1/root" if self._is_in_container() else self._root
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
        except (OSError, ValueError, RuntimeError):  # a path that is too long, a NUL, a loop of links
            allowed = False
        if not allowed:
            folders = (f"/{folder}" for folder in _FOLDERS)
            raise HostError(f"the agent may not open {path!r}; allowed are {', '.join((*folders, *_PLAIN_FILES))}")
        return target


def _read_records(descriptor: int) -> list[str]:
    """Return every record up to now. Raises OSError, and ValueError for a record of unknown form."""
    lines: list[str] = []
    deadline = time.monotonic() + _READ_LOG_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            raw = os.read(descriptor, _MAX_KMSG_RECORD)
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno == errno.EPIPE:  # overwritten meanwhile; the next read returns the oldest record left
                continue
            raise
        if not raw:
            break
        lines.append(render_record(raw))
    return lines
