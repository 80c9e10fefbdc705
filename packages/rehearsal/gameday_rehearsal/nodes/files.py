"""The few files of a virtual machine that faults and checks read and write: /proc, sysfs for PCI and NUMA, /etc."""

from __future__ import annotations

import re
import time

from gameday.errors import HostError
from gameday_rehearsal.nodes.identity import DRIVER_VERSION
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.numa import CPUS_OF_NODE, NODE_FILES, numa_node

_PCI = "/sys/bus/pci/devices/"
_RESCAN = "/sys/bus/pci/rescan"
_CGROUPS = "/sys/fs/cgroup/"
_DEVKMSG = "/proc/sys/kernel/printk_devkmsg"
_WAKE_ALARM = "/sys/class/rtc/rtc0/wakealarm"
_DEVKMSG_VALUES = ("on", "off", "ratelimit")
_NUMBER = re.compile(r"\+?(0[xX][0-9a-fA-F]+|[0-9]+)\n?")
"""A number as kstrtoul reads it: no white space but one newline at the end."""
WRITABLE_ETC = ("/etc/nccl.conf",)
_MAX_FILE_BYTES = 65_536
_SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}  # GT/s of a PCIe generation


def read_file(machine: Machine, path: str) -> str:
    """Read a file of the machine. Raises HostError with the errno's own text."""
    match path:
        case "/proc/sys/kernel/random/boot_id":
            return f"{machine.boot_id}\n"
        case "/proc/driver/nvidia/version":
            return f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER_VERSION}  Release Build\n"
        case _ if path in (_DEVKMSG, _WAKE_ALARM):
            return _read_setting(machine, path)
        case _ if path.startswith(_PCI):
            return _read_pci(machine, path)
        case _ if path in NODE_FILES:
            return NODE_FILES[path]
        case _ if path == _RESCAN:
            raise HostError(f"{path}: Permission denied (EACCES)")
    content = machine.extra_files.get(path) or machine.components.read(path)
    if content is None:
        raise _no_such(path)
    return content


def write_file(machine: Machine, path: str, content: str) -> None:
    """Write a file of the machine. Raises HostError. An empty /etc/nccl.conf counts as absent."""
    match path:
        case _ if path == _DEVKMSG:
            _write_devkmsg(machine, content)
        case _ if path == _WAKE_ALARM:
            _write_wake_alarm(machine, content.strip())
        case _ if path == _RESCAN:
            if _flag(path, content):
                machine.pci_rescan()
        case _ if path.startswith(_PCI) and path.endswith("/remove"):
            gpu = _gpu_of(machine, path)
            if _flag(path, content):
                machine.pci_remove(gpu)
        case _ if path.startswith(_CGROUPS):
            machine.components.write(path, content)
        case _ if path in WRITABLE_ETC:
            _write_etc(machine, path, content)
        case _:
            read_file(machine, path)  # a missing path gives its own error; an existing one is read-only
            raise HostError(f"{path}: Permission denied (EACCES)")


def _read_setting(machine: Machine, path: str) -> str:
    if path == _DEVKMSG:
        return f"{machine.log.devkmsg}\n"
    return "" if machine.wake_at is None else f"{machine.wake_at:.0f}\n"


def _flag(path: str, content: str) -> bool:
    """Return True for a number that is not 0; sysfs takes writing nothing for nothing written."""
    if not content:
        return False
    if not (number := _NUMBER.fullmatch(content)):
        raise HostError(f"{path}: Invalid argument (EINVAL): {content[:20]!r}")
    return number[1].strip("0xX") != ""


def _write_devkmsg(machine: Machine, content: str) -> None:
    """Set the policy. The kernel insists on exactly one newline after it."""
    value = content.removesuffix("\n")
    if value == content or value not in _DEVKMSG_VALUES:
        words = ", ".join(_DEVKMSG_VALUES)
        raise HostError(f"{_DEVKMSG}: Invalid argument (EINVAL): {content[:20]!r}; one of {words}, and a newline")
    machine.log.devkmsg = value


def _write_wake_alarm(machine: Machine, value: str) -> None:
    """Set the alarm to `+seconds` or epoch seconds; 0 clears it, which is needed before it is set again."""
    digits = value.removeprefix("+")
    if not digits.isdecimal():
        raise HostError(f"{_WAKE_ALARM}: Invalid argument (EINVAL): {value[:20]!r}")
    if int(digits) == 0:
        machine.wake_at = None
    elif machine.wake_at is not None:
        raise HostError(f"{_WAKE_ALARM}: Device or resource busy (EBUSY)")
    else:
        machine.wake_at = int(digits) + (time.time() if value.startswith("+") else 0)


def _write_etc(machine: Machine, path: str, content: str) -> None:
    if len(content.encode()) > _MAX_FILE_BYTES:
        raise HostError(f"{path}: File too large (EFBIG): the virtual host keeps {_MAX_FILE_BYTES} bytes")
    if content:
        machine.extra_files[path] = content
    else:
        machine.extra_files.pop(path, None)


def _read_pci(machine: Machine, path: str) -> str:
    gpu = _gpu_of(machine, path)
    cell = machine.cell(gpu)
    attribute = path.rsplit("/", 1)[1]
    if attribute == "remove":
        raise HostError(f"{path}: Permission denied (EACCES)")
    values = {
        "vendor": "0x10de",
        "device": "0x2330",
        "class": "0x030200",
        "numa_node": str(numa_node(gpu, len(machine.gpus))),
        "local_cpulist": CPUS_OF_NODE[numa_node(gpu, len(machine.gpus))],
        "current_link_speed": f"{_SPEEDS[int(machine.fleet.pcie_generation[cell])]} GT/s PCIe",
        "max_link_speed": f"{_SPEEDS[5]} GT/s PCIe",
        "current_link_width": str(machine.fleet.pcie_width[cell]),
        "max_link_width": "16",
    }
    if attribute not in values:
        raise _no_such(path)
    return f"{values[attribute]}\n"


def _gpu_of(machine: Machine, path: str) -> int:
    """Return the GPU of /sys/bus/pci/devices/<address>/<attribute>, the address with its function."""
    address, separator, attribute = path.removeprefix(_PCI).partition("/")
    for gpu in machine.gpus:
        if address == gpu.sysfs_name and not machine.fleet.removed[machine.index, gpu.index]:
            if not separator or "/" in attribute:
                break
            return gpu.index
    raise _no_such(path)


def _no_such(path: str) -> HostError:
    return HostError(f"{path}: No such file or directory (ENOENT)")
