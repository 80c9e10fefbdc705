"""Role remediate: reset a GPU, restart the driver's service, or reboot, and prove that it happened.

* gpu-reset: `nvidia-smi --gpu-reset -i UUID`, with persistence mode off
  meanwhile. We or the tool refuse it while any process has the GPU open,
  monitors such as the device plugin and DCGM included. Afterwards the agent
  writes a kernel-log line, by which the node-health controller ends the faults
  that a reset heals.
* driver-restart: `systemctl restart nvidia-persistenced`. With the daemon gone
  and no client left, the driver releases every GPU, and initialises it again
  when the daemon comes back. A full module reload would need every client of
  the driver to stop; a reboot does that.
* reboot: `systemctl reboot`. The result is written before, because this pod
  dies with the node. A new boot id proves that the node came back.
"""

from __future__ import annotations

import time
from contextlib import nullcontext

from gameday.agent.context import Context
from gameday.agent.task import AgentResult, RemediateTask
from gameday.errors import HostError
from gameday.faults.gpu import PERSISTENCE_DAEMON, ready_for_reset
from gameday.faults.systemd import state_of
from gameday.host.base import GpuSample, Host
from gameday.plan.models import RemediationAction
from gameday.values.results import Cleanliness

_RESET_TIMEOUT_S = 120.0
"""NVSentinel's own objective for one reset (docs/sources.md, NVSentinel)."""
_RETURN_TIMEOUT_S = 30.0
_QUERY_TIMEOUT_S = 20.0


def remediate(task: RemediateTask, context: Context) -> AgentResult:
    """Carry out the task's remediation.

    Raises:
        HostError: The host cannot be reached.
    """
    match task.action:
        case RemediationAction.NONE:
            return _result(("no remediation was asked for",))
        case RemediationAction.GPU_RESET:
            return _reset_gpu(task.gpu, context.host)
        case RemediationAction.DRIVER_RESTART:
            return _restart_driver(context.host)
        case RemediationAction.REBOOT:
            return _reboot(context)


def _result(evidence: tuple[str, ...], error: str = "") -> AgentResult:
    # A failed remediation leaves nothing of ours on the node, so the result is always clean.
    return AgentResult(
        role="remediate",
        ok=not error,
        cleanliness=Cleanliness.CLEAN,
        error=error,
        ended_by="error" if error else "done",
        evidence=evidence,
    )


def _reset_gpu(index: int | None, host: Host) -> AgentResult:
    before = _gpu(host, index)
    if before is None:
        return _result((), f"gpu-reset: NVML knows no GPU {index}; name another one in the task's `gpu`")
    name = before.uuid or str(before.index)
    evidence = [f"before: GPU {before.index} {name} {'lost' if before.lost else 'answers'}"]
    # NVML does not report a lost GPU's persistence mode, and nvidia-smi's own message is the best advice about it.
    prepared = nullcontext() if before.lost else ready_for_reset(host, before, evidence)
    try:
        with prepared:
            failure = _reset(host, before, name, evidence)
    except HostError as error:
        failure = str(error)
    return _result(tuple(evidence), f"gpu-reset of GPU {before.index}: {failure}" if failure else "")


def _reset(host: Host, before: GpuSample, name: str, evidence: list[str]) -> str:
    """Reset the GPU, and return why that failed; empty where it did not. Raises HostError."""
    reset = host.run(["nvidia-smi", "--gpu-reset", "-i", name], _RESET_TIMEOUT_S)
    output = " ".join((reset.stdout + " " + reset.stderr).split())[:500]
    evidence.append(f"nvidia-smi --gpu-reset -i {name}: exit {reset.exit_status}: {output}")
    after = _wait_until_back(host, before) if reset.exit_status == 0 else _gpu(host, before.index)
    success = reset.exit_status == 0 and after is not None and not after.lost
    evidence.append(f"after: GPU {before.index} {'answers' if after and not after.lost else 'does not answer'}")
    pci = before.pci_bus_id or (after.pci_bus_id if after else "")
    if pci:
        record = f"<6>gameday-agent: GPU reset executed: PCI:{pci}, success: {str(success).lower()}"
        host.write_kernel_log(record)
        evidence.append(f"written: {record}")
    if success:
        return ""
    return f"nvidia-smi refused: {output}" if reset.exit_status else f"not back within {_RETURN_TIMEOUT_S:g} s"


def _gpu(host: Host, index: int | None) -> GpuSample | None:
    return next((gpu for gpu in host.gpus() if gpu.index == index), None)


def _wait_until_back(host: Host, before: GpuSample) -> GpuSample | None:
    """Return the GPU once it answers; after the timeout, as it is then."""
    deadline = time.monotonic() + _RETURN_TIMEOUT_S
    while True:
        found = _gpu(host, before.index)
        if (found and not found.lost) or time.monotonic() > deadline:
            return found
        time.sleep(0.25)


def _restart_driver(host: Host) -> AgentResult:
    unit = state_of(host, PERSISTENCE_DAEMON)
    if unit.load != "loaded":
        why = (
            f"{PERSISTENCE_DAEMON} is {unit.load} on this host, as where the GPU operator runs the driver in a "
            "container: the driver cannot be restarted there; use remediation: reboot"
        )
        return _result((f"{PERSISTENCE_DAEMON}: {unit}",), f"driver-restart: {why}")
    restarted = host.run(["systemctl", "restart", PERSISTENCE_DAEMON], _RESET_TIMEOUT_S)
    active = host.run(["systemctl", "is-active", PERSISTENCE_DAEMON], _QUERY_TIMEOUT_S)
    gpus = host.gpus()
    lost = [gpu.index for gpu in gpus if gpu.lost]
    success = restarted.exit_status == 0 and active.exit_status == 0 and bool(gpus) and not lost
    record = f"<6>gameday-agent: driver restart executed: {PERSISTENCE_DAEMON}, success: {str(success).lower()}"
    host.write_kernel_log(record)
    output = " ".join(restarted.stderr.split())[:500]
    evidence = (
        f"systemctl restart {PERSISTENCE_DAEMON}: exit {restarted.exit_status} {output}".rstrip(),
        f"systemctl is-active {PERSISTENCE_DAEMON}: {active.stdout.strip()[:60] or 'no answer'}",
        f"after: {len(gpus)} GPU(s), lost: {lost or 'none'}",
        f"written: {record}",
    )
    if success:
        return _result(evidence)
    return _result(evidence, f"driver-restart: {output or evidence[1 if active.exit_status else 2]}")


def _reboot(context: Context) -> AgentResult:
    boot_id = context.host.boot_id()
    success = _result((f"boot id before: {boot_id}", "running: systemctl reboot")).model_copy(
        update={"undo_state": {"boot_id": boot_id}}
    )
    context.write_result(success)
    try:
        reboot = context.host.run(["systemctl", "reboot"], _QUERY_TIMEOUT_S)
    except HostError as error:
        # A node that goes down while it answers is a success.
        return success if _is_gone(context.host, boot_id) else _result(success.evidence, f"reboot: {error}")
    if reboot.exit_status == 0:
        return success
    output = " ".join(reboot.stderr.split())[:500]
    return _result(success.evidence, f"reboot: systemctl exit {reboot.exit_status}: {output}")


def _is_gone(host: Host, boot_id: str) -> bool:
    try:
        return host.boot_id() != boot_id
    except HostError:
        return True
