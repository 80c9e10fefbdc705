"""Role remediate: reset a GPU, restart the driver's service, or reboot, and prove that it happened.

* gpu-reset: `nvidia-smi --gpu-reset -i UUID`, with persistence mode off
  meanwhile; refused by us or by the tool while any process has the GPU open,
  monitors like the device plugin and DCGM included. Afterwards a kernel-log
  line says so, in the form the node-health controller takes as the end of what
  a reset heals.
* driver-restart: `systemctl restart nvidia-persistenced`. With the daemon gone
  and no client left, the driver lets go of every GPU, and initialises it anew
  when the daemon comes back; a full module reload would need every client of
  the driver stopped, which is a reboot's work.
* reboot: `systemctl reboot`. The answer is written before, as this pod dies
  with the node; that the node came back is proved by another boot id.
"""

from __future__ import annotations

import time
from contextlib import nullcontext

from gameday.agent.context import Context
from gameday.agent.task import Outcome, RemediateTask
from gameday.errors import HostError
from gameday.faults.gpu import PERSISTENCE_DAEMON, ready_for_reset
from gameday.faults.systemd import state_of
from gameday.host.base import GpuSample, Host
from gameday.plan.models import RemediationAction
from gameday.values.results import Cleanliness

_RESET_WITHIN_S = 120.0
"""NVSentinel's own objective for one reset (docs/sources.md, NVSentinel)."""
_BACK_WITHIN_S = 30.0
_QUERY_WITHIN_S = 20.0


def remediate(task: RemediateTask, context: Context) -> Outcome:
    """Raises HostError where the host cannot even be asked."""
    match task.action:
        case RemediationAction.NONE:
            return _outcome(("no remediation was asked for",))
        case RemediationAction.GPU_RESET:
            return _reset_gpu(task.gpu, context.host)
        case RemediationAction.DRIVER_RESTART:
            return _restart_driver(context.host)
        case RemediationAction.REBOOT:
            return _reboot(context)


def _outcome(evidence: tuple[str, ...], error: str = "") -> Outcome:
    # Nothing of ours is left behind by a remediation that failed, so it is never dirty.
    return Outcome(
        role="remediate",
        ok=not error,
        cleanliness=Cleanliness.CLEAN,
        error=error,
        ended_by="error" if error else "done",
        evidence=evidence,
    )


def _reset_gpu(index: int | None, host: Host) -> Outcome:
    before = _gpu(host, index)
    if before is None:
        return _outcome((), f"gpu-reset: GPU {index} is not among those NVML knows; name one in the task's `gpu`")
    name = before.uuid or str(before.index)
    evidence = [f"before: GPU {before.index} {name} {'lost' if before.lost else 'answers'}"]
    # NVML tells no persistence mode of a lost GPU, and nvidia-smi says best what to do about one.
    prepared = nullcontext() if before.lost else ready_for_reset(host, before, evidence)
    try:
        with prepared:
            why = _reset(host, before, name, evidence)
    except HostError as error:
        why = str(error)
    return _outcome(tuple(evidence), f"gpu-reset of GPU {before.index}: {why}" if why else "")


def _reset(host: Host, before: GpuSample, name: str, evidence: list[str]) -> str:
    """Why it did not succeed; empty where it did. Raises HostError."""
    reset = host.run(["nvidia-smi", "--gpu-reset", "-i", name], _RESET_WITHIN_S)
    said = " ".join((reset.stdout + " " + reset.stderr).split())[:500]
    evidence.append(f"nvidia-smi --gpu-reset -i {name}: exit {reset.exit_status}: {said}")
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
    return f"nvidia-smi refused: {said}" if reset.exit_status else f"not back within {_BACK_WITHIN_S:g} s"


def _gpu(host: Host, index: int | None) -> GpuSample | None:
    return next((gpu for gpu in host.gpus() if gpu.index == index), None)


def _wait_until_back(host: Host, before: GpuSample) -> GpuSample | None:
    """The GPU once it answers; after 30 s, whatever it shows then."""
    deadline = time.monotonic() + _BACK_WITHIN_S
    while True:
        found = _gpu(host, before.index)
        if (found and not found.lost) or time.monotonic() > deadline:
            return found
        time.sleep(0.25)


def _restart_driver(host: Host) -> Outcome:
    found = state_of(host, PERSISTENCE_DAEMON)
    if found.load != "loaded":
        why = (
            f"{PERSISTENCE_DAEMON} is {found.load} on this host, as where the GPU operator runs the driver in a "
            "container: the driver cannot be restarted there; use remediation: reboot"
        )
        return _outcome((f"{PERSISTENCE_DAEMON}: {found}",), f"driver-restart: {why}")
    restarted = host.run(["systemctl", "restart", PERSISTENCE_DAEMON], _RESET_WITHIN_S)
    active = host.run(["systemctl", "is-active", PERSISTENCE_DAEMON], _QUERY_WITHIN_S)
    gpus = host.gpus()
    lost = [gpu.index for gpu in gpus if gpu.lost]
    success = restarted.exit_status == 0 and active.exit_status == 0 and bool(gpus) and not lost
    record = f"<6>gameday-agent: driver restart executed: {PERSISTENCE_DAEMON}, success: {str(success).lower()}"
    host.write_kernel_log(record)
    said = " ".join(restarted.stderr.split())[:500]
    evidence = (
        f"systemctl restart {PERSISTENCE_DAEMON}: exit {restarted.exit_status} {said}".rstrip(),
        f"systemctl is-active {PERSISTENCE_DAEMON}: {active.stdout.strip()[:60] or 'no answer'}",
        f"after: {len(gpus)} GPU(s), lost: {lost or 'none'}",
        f"written: {record}",
    )
    if success:
        return _outcome(evidence)
    return _outcome(evidence, f"driver-restart: {said or evidence[1 if active.exit_status else 2]}")


def _reboot(context: Context) -> Outcome:
    boot_id = context.host.boot_id()
    promised = _outcome((f"boot id before: {boot_id}", "running: systemctl reboot")).model_copy(
        update={"undo_state": {"boot_id": boot_id}}
    )
    context.write_outcome(promised)
    try:
        asked = context.host.run(["systemctl", "reboot"], _QUERY_WITHIN_S)
    except HostError as error:
        # A node that goes down while it answers is what was asked for; one that is still there is not.
        return promised if _is_gone(context.host, boot_id) else _outcome(promised.evidence, f"reboot: {error}")
    if asked.exit_status == 0:
        return promised
    said = " ".join(asked.stderr.split())[:500]
    return _outcome(promised.evidence, f"reboot: systemctl exit {asked.exit_status}: {said}")


def _is_gone(host: Host, boot_id: str) -> bool:
    try:
        return host.boot_id() != boot_id
    except HostError:
        return True
