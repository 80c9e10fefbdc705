"""What a container has to be given so that the host boundary works from inside it: as little as each use allows.

Kubernetes grants no single device: whatever opens /dev/kmsg or /dev/nvidia*
without being the owner of a GPU needs `privileged`, because a container's
device cgroup allows nothing else. What only enters the host's namespaces and
speaks to a daemon there needs three capabilities (setns(2), and the ptrace
access check of namespaces(7)), and no device.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict


class PodSecurity(BaseModel):
    """One pod's rights over its node."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    privileged: bool = False
    """Every device, every capability, no seccomp or AppArmor profile."""
    host_pid: bool = False
    """Sees the host's processes; the way into their namespaces leads through /proc."""
    capabilities: tuple[str, ...] = ()
    """Linux capabilities that are kept, all others dropped; without meaning where `privileged`."""
    why: str
    """For the one who has to allow it."""

    def shown(self) -> str:
        """In one line, for documents."""
        parts = ["privileged"] if self.privileged else []
        parts += [f"capabilities {', '.join(self.capabilities)}"] if self.capabilities else []
        parts += ["hostPID"] if self.host_pid else []
        return f"{' and '.join(parts) or 'nothing beyond a plain pod'}: {self.why}"


# setns(2) into process 1's namespaces: CAP_SYS_ADMIN for each of them, CAP_SYS_CHROOT for the mount namespace; the
# links under /proc/1/ns open only with CAP_SYS_PTRACE.
_ENTER_THE_HOST = ("SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE")

KERNEL_LOG = PodSecurity(privileged=True, why="it opens /dev/kmsg, and Kubernetes grants no single device")
"""Kernel log and NVML, by devices alone."""
DAEMONS = PodSecurity(
    host_pid=True,
    capabilities=_ENTER_THE_HOST,
    why="it runs a program in the host's namespaces that speaks to a daemon there, and opens no device",
)
"""dcgmi to the host engine, systemctl to systemd."""
HOST_NETWORK = PodSecurity(
    host_pid=True,
    capabilities=("NET_ADMIN", *_ENTER_THE_HOST),
    why="it changes the host's network interfaces with the host's own programs",
)
"""tc and ip."""
HOST_FILES = PodSecurity(
    host_pid=True, capabilities=("SYS_PTRACE",), why="it writes a file of the host's, which it sees through process 1"
)
"""A plain file of the host's /etc."""
GPU_PROGRAMS = PodSecurity(
    privileged=True, host_pid=True, why="it runs nvidia-smi in the host's namespaces, which opens the GPUs' devices"
)
"""nvidia-smi, and whatever else opens a GPU's device from the host's namespaces."""
GPU_WORK = PodSecurity(
    privileged=True,
    host_pid=True,
    why="it opens the GPU's devices without owning a GPU, and whoever undoes it has to find its processes",
)
"""Work on a GPU that the scheduler did not give us."""
HOST_SYSFS = PodSecurity(
    privileged=True, host_pid=True, why="it writes the host's sysfs, which other containers see read-only"
)
"""PCI devices, the real-time clock's alarm."""
UNSTATED = PodSecurity(why="it states no rights, and is given none")
"""The rights of a fault that leaves them out. The rehearsal's model of a node enforces no rights."""


def together(parts: Iterable[PodSecurity]) -> PodSecurity:
    """What a pod needs that does all of these."""
    wanted = tuple(dict.fromkeys(parts))
    privileged = any(part.privileged for part in wanted)
    return PodSecurity(
        privileged=privileged,
        host_pid=any(part.host_pid for part in wanted),
        capabilities=() if privileged else tuple(sorted({name for part in wanted for name in part.capabilities})),
        why="; ".join(part.why for part in wanted),
    )
