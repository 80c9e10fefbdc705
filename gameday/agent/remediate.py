"""Role remediate: carry out a remediation (gameday/remediations) on this node, and report how it went."""

from __future__ import annotations

from gameday.agent.context import Context, task_error
from gameday.agent.task import AgentResult, RemediateTask
from gameday.errors import HostError
from gameday.host.base import Host
from gameday.remediations.base import Remediation
from gameday.remediations.registry import remediation_for
from gameday.values.results import Cleanliness


def remediate(task: RemediateTask, context: Context) -> AgentResult:
    """Carry out the remediation that the task names.

    Raises:
        TaskError: There is no remediation of this name.
        HostError: The host does not answer, before a repair that takes the node down.
    """
    try:
        remediation = remediation_for(task.action)
    except ValueError as error:
        raise task_error(error) from None
    if remediation.takes_node_down:
        return _take_down(remediation, task.gpu, context)
    lines: list[str] = []
    try:
        remediation.repair(_gpu(task, context.host), context.host, lines)
    except HostError as error:
        return _result(lines, f"{remediation.name}: {error}")
    return _result(lines)


def _gpu(task: RemediateTask, host: Host) -> int | None:
    """Return the NVML index of the task's GPU; None if it names none. Raises HostError for an unknown address."""
    if task.gpu is not None or task.pci is None:
        return task.gpu
    found = next((gpu.index for gpu in host.gpus() if gpu.pci_bus_id == task.pci), None)
    if found is None:
        raise HostError(f"NVML knows no GPU at {task.pci}")
    return found


def _take_down(remediation: Remediation, gpu: int | None, context: Context) -> AgentResult:
    """Report before the repair, as this pod ends with the node; a new boot id proves later that the node came back."""
    boot_id = context.host.boot_id()
    lines = [f"boot id before: {boot_id}"]
    promised = _result([*lines, f"running: {remediation.name}"]).model_copy(update={"undo_state": {"boot_id": boot_id}})
    context.write_result(promised)
    try:
        remediation.repair(gpu, context.host, lines)
    except HostError as error:
        # A node that stops answering is carrying out the order; a node that is still up is not.
        if not _is_gone(context.host, boot_id):
            return _result(lines, f"{remediation.name}: {error}")
    return promised


def _is_gone(host: Host, boot_id: str) -> bool:
    try:
        return host.boot_id() != boot_id
    except HostError:
        return True


def _result(lines: list[str], error: str = "") -> AgentResult:
    # A failed remediation leaves nothing of ours behind, so it is never dirty.
    return AgentResult(
        role="remediate",
        ok=not error,
        cleanliness=Cleanliness.CLEAN,
        error=error,
        ended_by="error" if error else "done",
        evidence=tuple(lines),
    )
