"""A GPU that is gone from the PCI bus, and comes back with a rescan."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar, Literal

from gameday.errors import HostError
from gameday.faults.base import BUS, HOST_ENGINE, Claim, Evidence, Fault, Layer, NodeNeeds
from gameday.faults.gpu import PERSISTENCE_DAEMON, GpuParameters, nvidia_smi, refuse_while_open, target_gpu, wait_until
from gameday.host.base import GpuSample, Host
from gameday.host.privileges import HOST_SYSFS, PodSecurity
from gameday.plan.fault import FaultParameters

_PCI = "/sys/bus/pci/devices/{}"
_RESCAN = "/sys/bus/pci/rescan"
_CONSEQUENCE = "the removal would hang until they end"


class GpuRemovedParameters(GpuParameters):
    dangerous: ClassVar[str] = (
        "a process that opens the GPU in the moment of its removal makes the removal hang until the node is rebooted; "
        "on an NVSwitch board the GPU that comes back may need the fabric manager restarted before CUDA works on it"
    )
    type: Literal["gpu_removed"] = "gpu_removed"
    gpus: Literal["one", "all"] = "one"
    """The GPUs to remove: one, or all of the node."""


class GpuRemovedFault(Fault[GpuRemovedParameters]):
    """Takes GPUs off the PCI bus through sysfs (`remove`), and brings them back (`rescan`).

    The driver's remove waits, forever and unkillably, until no process has the GPU open (nv-pci.c). So persistence
    mode is turned off first, and the fault is refused while any other process has the device open: jobs, DCGM's host
    engine, dcgm-exporter, the device plugin. The GPU operator's own pods leave the node before the removal, and come
    back after it to show the fault.
    """

    parameters: ClassVar[type[FaultParameters]] = GpuRemovedParameters
    layer: ClassVar[Layer] = Layer.NODE
    security: ClassVar[PodSecurity] = HOST_SYSFS
    summary: ClassVar[str] = "Takes one GPU, or all of a node's, off the PCI bus"
    does_not_reach: ClassVar[str] = (
        "the kernel log's Xids: an orderly removal is no Xid 79; a device plugin that only listens for Xids; the "
        "other GPUs, but for their indices: NVML renumbers them"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "GPU count in QA",
        "allocatable nvidia.com/gpu, once the device plugin looks again",
        "DCGM: the GPU's series end (GPUCountLow)",
        "gpud (gpu-counts)",
        "EKS node monitoring agent (DeviceCountMismatch)",
        "NVSentinel with the expected-count label",
    )

    def claims(self, parameters: GpuRemovedParameters) -> tuple[Claim, ...]:
        # NVML renumbers all GPUs: other faults on GPUs would look for theirs under another index.
        return (Claim(BUS), Claim(HOST_ENGINE, shared=True))

    def needs(self, parameters: GpuRemovedParameters) -> NodeNeeds:
        return NodeNeeds(idle_gpu=True, operands_away=True)

    def warnings(self, parameters: GpuRemovedParameters) -> tuple[str, ...]:
        return ("dangerous: what is set on the GPU (power cap, clock lock) is the driver's default afterwards",)

    def prior_state(self, parameters: GpuRemovedParameters, gpu: int, host: Host) -> dict[str, str]:
        chosen = _chosen(parameters, gpu, host)
        for sample in chosen:
            refuse_while_open(host, sample, _CONSEQUENCE, but=PERSISTENCE_DAEMON)
        return {
            "pci": ",".join(f"{sample.pci_bus_id}.0" for sample in chosen),
            "persistent": ",".join(f"{sample.pci_bus_id}.0" for sample in chosen if sample.persistence_mode),
        }

    def inject(self, parameters: GpuRemovedParameters, gpu: int, host: Host) -> Evidence:
        before = self.prior_state(parameters, gpu, host)
        chosen = _chosen(parameters, gpu, host)
        lines = [f"before: NVML counts {len(host.gpus())} GPUs"]
        for sample in chosen:
            if sample.persistence_mode:
                lines.append(f"GPU {sample.index}: nvidia-smi -pm 0: {nvidia_smi(host, sample, '-pm', '0')}")
        for sample in chosen:
            refuse_while_open(host, sample, _CONSEQUENCE, but=None)
        written_at = datetime.now(UTC)
        for sample in chosen:
            path = _PCI.format(f"{sample.pci_bus_id}.0")
            host.write_file(f"{path}/remove", "1")
            lines.append(f"written: 1 to {path}/remove (GPU {sample.index} {sample.uuid})")
        if left := [address for address in before["pci"].split(",") if _is_on_bus(host, address)]:
            raise HostError(f"the host accepted the removal, and {', '.join(left)} is still on the PCI bus")
        lines.append(f"after: off the PCI bus; {_nvml_count(host)}")
        return Evidence(lines=tuple(lines), written_at=written_at, undo_state=before)

    def undo(self, parameters: GpuRemovedParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        host.write_file(_RESCAN, "1")
        lines = [f"written: 1 to {_RESCAN}"]
        wanted = set(filter(None, undo_state.get("pci", "").split(",")))
        back = wait_until(lambda: wanted <= _responding(host).keys())
        lines.append(f"{len(wanted)} GPU(s) {'answer again' if back else 'do not all answer'}; {_nvml_count(host)}")
        found = _responding(host)
        for address in filter(None, undo_state.get("persistent", "").split(",")):
            if address in found and not found[address].persistence_mode:
                lines.append(f"nvidia-smi -pm 1: {nvidia_smi(host, found[address], '-pm', '1')}")
        return Evidence(lines=tuple(lines))

    def verify_undone(self, parameters: GpuRemovedParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        if "pci" not in undo_state:
            raise HostError(
                "the bus was rescanned, but which GPUs were on it before is not known: compare `nvidia-smi -L` with "
                "what the node should have"
            )
        found = _responding(host)
        persistent = filter(None, undo_state.get("persistent", "").split(","))
        return set(undo_state["pci"].split(",")) <= found.keys() and all(
            found[address].persistence_mode for address in persistent
        )


def _chosen(parameters: GpuRemovedParameters, gpu: int, host: Host) -> list[GpuSample]:
    """Return the GPUs to remove. Raises HostError for a GPU that is lost or has no known PCI address."""
    chosen = host.gpus() if parameters.gpus == "all" else [target_gpu(parameters, gpu, host)]
    for sample in chosen:
        if not sample.pci_bus_id:
            raise HostError(f"NVML does not show the PCI address of GPU {sample.index}: reboot the node first")
    if not chosen:
        raise HostError("NVML counts no GPU on this node: there is nothing to remove")
    return chosen


def _is_on_bus(host: Host, address: str) -> bool:
    try:
        host.read_file(f"{_PCI.format(address)}/vendor")
    except HostError:
        host.boot_id()  # raises if the host itself does not answer
        return False
    return True


def _responding(host: Host) -> dict[str, GpuSample]:
    """Return the GPUs that NVML can read, by PCI address with function; empty if NVML shows none."""
    try:
        return {f"{sample.pci_bus_id}.0": sample for sample in host.gpus() if not sample.lost}
    except HostError:
        return {}


def _nvml_count(host: Host) -> str:
    try:
        return f"NVML counts {len(host.gpus())} GPUs"
    except HostError as error:
        return f"NVML says: {error}"
