"""The least privileges with which a container can reach its host, for each kind of use.

Kubernetes grants no single device: a container that opens /dev/kmsg, or /dev/nvidia* without owning a GPU, needs
`privileged`, because its device cgroup allows nothing else. A container that only enters the host's namespaces and
calls a daemon there needs three capabilities (setns(2), and the ptrace access check of namespaces(7)), and no device.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ConfigDict

from gameday.host.base import HostModel


class PodSecurity(HostModel):
    """The rights of a pod over its node."""

    model_config = ConfigDict(extra="forbid")

    privileged: bool = False
    """The pod has every device and every capability, and no seccomp or AppArmor profile."""
    host_pid: bool = False
    """The pod sees the host's processes, and can enter their namespaces through /proc."""
    capabilities: tuple[str, ...] = ()
    """Linux capabilities that the pod keeps; all others are dropped. No effect if `privileged`."""
    why: str
    """The reason, for the person who has to allow it."""

    def describe(self) -> str:
        """Return the rights and their reason on one line, for the documentation."""
        parts = ["privileged"] if self.privileged else []
        parts += [f"capabilities {', '.join(self.capabilities)}"] if self.capabilities else []
        parts += ["hostPID"] if self.host_pid else []
        return f"{' and '.join(parts) or 'nothing beyond a plain pod'}: {self.why}"


# setns(2) into process 1's namespaces needs CAP_SYS_ADMIN for each of them, and CAP_SYS_CHROOT for the mount namespace;
# the links under /proc/1/ns open only with CAP_SYS_PTRACE.
_ENTER_HOST_NAMESPACES = ("SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE")

KERNEL_LOG = PodSecurity(privileged=True, why="it opens /dev/kmsg, and Kubernetes grants no single device")
"""The rights for the kernel log and NVML, which need only devices."""
DAEMONS = PodSecurity(
    host_pid=True,
    capabilities=_ENTER_HOST_NAMESPACES,
    why="it runs a program in the host's namespaces that calls a daemon there, and opens no device",
)
"""The rights for dcgmi, which calls the host engine, or systemctl, which calls systemd."""
HOST_NETWORK = PodSecurity(
    host_pid=True,
    capabilities=("NET_ADMIN", *_ENTER_HOST_NAMESPACES),
    why="it changes the host's network interfaces with the host's own programs",
)
"""The rights for tc and ip."""
HOST_FILES = PodSecurity(
    host_pid=True, capabilities=("SYS_PTRACE",), why="it writes a file of the host, which it sees through process 1"
)
"""The rights for changing a plain file in the host's /etc."""
GPU_PROGRAMS = PodSecurity(
    privileged=True, host_pid=True, why="it runs nvidia-smi in the host's namespaces, which opens the GPUs' devices"
)
"""The rights for nvidia-smi, or another program that opens a GPU's device from the host's namespaces."""
GPU_WORK = PodSecurity(
    privileged=True,
    host_pid=True,
    why="it opens the GPU's devices without owning a GPU, and the pod that undoes it has to find its processes",
)
"""The rights for work on a GPU that the scheduler did not assign to the pod."""
HOST_SYSFS = PodSecurity(
    privileged=True, host_pid=True, why="it writes the host's sysfs, which other containers see read-only"
)
"""The rights for PCI devices or the real-time clock's alarm."""
API_CLIENT = PodSecurity(why="it speaks to the API server, and touches nothing of its node")
"""The rights of API load and API canaries: none."""
UNSTATED = PodSecurity(why="it states no rights, and is given none")
"""The rights of a fault that does not state any. The rehearsal's model of a node enforces no rights."""


def combined(parts: Iterable[PodSecurity]) -> PodSecurity:
    """Return the rights of a pod that needs all of these."""
    distinct = tuple(dict.fromkeys(parts))
    privileged = any(part.privileged for part in distinct)
    return PodSecurity(
        privileged=privileged,
        host_pid=any(part.host_pid for part in distinct),
        capabilities=() if privileged else tuple(sorted({name for part in distinct for name in part.capabilities})),
        why="; ".join(part.why for part in distinct),
    )
