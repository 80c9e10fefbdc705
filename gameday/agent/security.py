"""The rights over its node that an agent's pod needs: those of its fault, or of its role."""

from __future__ import annotations

from gameday.agent.package_task import PackageTask
from gameday.agent.task import (
    AllReduceTask,
    CanaryTask,
    GpuUsersTask,
    InjectTask,
    MarkTask,
    ProbeTask,
    QaTask,
    RemediateTask,
    SampleTask,
    Task,
    UndoTask,
)
from gameday.faults.optional import account_of, rights_of
from gameday.faults.registry import parse_parameters
from gameday.host.privileges import DAEMONS, GPU_PROGRAMS, GPU_WORK, KERNEL_LOG, PodSecurity, combined
from gameday.remediations.registry import remediation_for
from gameday.values.measures import Backend, Measure

_PINGS = PodSecurity(
    host_pid=True,
    capabilities=(*DAEMONS.capabilities, "NET_RAW"),
    why="it pings from the host's network namespace",
)
_ALL_REDUCE = PodSecurity(
    host_pid=True,
    capabilities=("SYS_ADMIN", "SYS_PTRACE", "NET_RAW"),
    why="it opens sockets at the host's interfaces, in the host's network namespace",
)
"""Entering a network namespace needs CAP_SYS_ADMIN, its link under /proc/1/ns CAP_SYS_PTRACE (setns(2)); binding to an
interface needs CAP_NET_RAW before Linux 5.7 (socket(7))."""
_NCCL = PodSecurity(
    privileged=True,
    host_pid=True,
    why="it enters the host's network namespace, and NCCL opens the RDMA adapters' devices and pins memory for them",
)


def api_account_of(task: Task | PackageTask) -> str | None:
    """Return the service account with which a task's pod uses the API server; None if it does not use it."""
    match task:
        case InjectTask() | UndoTask():
            return account_of(parse_parameters(task.fault)) or None
        case PackageTask():
            return task.api_account
    return None


def security_of(task: Task | PackageTask) -> PodSecurity:  # noqa: PLR0911 - one line for each role
    """Return the rights that a task needs. Raises ValueError for an unknown fault or remediation."""
    match task:
        case InjectTask() | UndoTask():
            return rights_of(parse_parameters(task.fault))
        case RemediateTask():
            return remediation_for(task.action).security
        case QaTask() | GpuUsersTask() | ProbeTask():
            return GPU_WORK
        case CanaryTask(measure=measure):
            return _PINGS if measure.uses_ping else GPU_PROGRAMS if measure is Measure.ALL_REDUCE else GPU_WORK
        case AllReduceTask(backend=backend):
            return _NCCL if backend is Backend.NCCL else _ALL_REDUCE
        case PackageTask():
            return task.security
        case MarkTask():
            log = KERNEL_LOG if task.reset_gpu is None else GPU_PROGRAMS
            users = (GPU_WORK,) if task.gpu_pods else ()
            engines = (DAEMONS,) if task.dcgm_engines or task.needs_dcgmi else ()
            return combined((log, *users, *engines))
        case SampleTask():
            return KERNEL_LOG
