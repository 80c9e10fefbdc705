"""A misplaced canary: it feeds its GPU from the far NUMA node."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Literal

from pydantic import Field

from gameday.errors import HostError
from gameday.faults.base import CanaryJob, Evidence, Fault, Layer
from gameday.faults.gpu import GpuParameters, target_gpu
from gameday.faults.gpu_work import end_work, gpu_index, watch_work
from gameday.host.base import CopyToGpu, GpuSample, Host, WorkReport
from gameday.host.cpus import format_cpus, parse_cpus
from gameday.host.privileges import GPU_WORK, PodSecurity
from gameday.plan.fault import FaultParameters

_NODES = "/sys/devices/system/node"


class NumaParameters(GpuParameters):
    type: Literal["numa"] = "numa"
    far_node: int | None = Field(default=None, ge=0, le=1023)
    """NUMA node that the canary is pinned to; None: the farthest from the GPU."""


@dataclass(frozen=True)
class Alignment:
    """The NUMA nodes of a GPU and of the canary, with their CPUs as sysfs lists them."""

    gpu_node: int
    near_cpus: tuple[int, ...]
    nvml_cpus: str | None
    far_node: int
    far_cpus: tuple[int, ...]
    distance: int


class NumaFault(Fault[NumaParameters]):
    """Copies to one GPU from the near NUMA node, then goes on copying from the far one.

    Nothing on the node changes: the fault is the canary itself, and it is out once that has ended. It runs on a NUMA
    node's CPUs and binds its memory there (mbind, confirmed by move_pages for every page). The ratio of the two rates
    is the price of a misplaced job.
    """

    parameters: ClassVar[type[FaultParameters]] = NumaParameters
    layer: ClassVar[Layer] = Layer.HARDWARE_LOAD
    security: ClassVar[PodSecurity] = GPU_WORK
    summary: ClassVar[str] = "Feeds one GPU from the far NUMA node, and measures what that costs"
    does_not_reach: ClassVar[str] = (
        "the kubelet's Topology Manager (expect.topology_manager_rejects sends a pod for that); other jobs, but for "
        "the link between the sockets"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "the canary's own ratio of far to near, in this fault's evidence",
        "no detector",
        "`nvidia-smi topo -m` and nvbandwidth, by hand",
    )

    def prior_state(self, parameters: NumaParameters, gpu: int, host: Host) -> dict[str, str]:
        alignment(parameters, gpu, host)
        return {}

    def canary_job(self, parameters: NumaParameters) -> CanaryJob:
        return CanaryJob(far_from_gpu=True)

    def inject(self, parameters: NumaParameters, gpu: int, host: Host) -> Evidence:
        sample = target_gpu(parameters, gpu, host)
        place = alignment(parameters, gpu, host)
        near = _rate(
            place.gpu_node, host.start_work(sample.index, CopyToGpu(cpus=place.near_cpus, memory_node=place.gpu_node))
        )
        host.end_work(sample.index)
        written_at = datetime.now(UTC)
        far = _rate(
            place.far_node, host.start_work(sample.index, CopyToGpu(cpus=place.far_cpus, memory_node=place.far_node))
        )
        agrees = "agrees" if place.nvml_cpus == format_cpus(place.near_cpus) else f"says {place.nvml_cpus or 'nothing'}"
        far_from = f"node {place.far_node} (distance {place.distance}), CPUs {format_cpus(place.far_cpus)}"
        lines = (
            f"GPU {sample.index} is at NUMA node {place.gpu_node}, CPUs {format_cpus(place.near_cpus)}; NVML {agrees}",
            f"near: {near:g} GB/s to the GPU",
            f"far: {far:g} GB/s from {far_from}; every page on that node",
            f"far/near = {far / near:.2f}",
        )
        return Evidence(lines=lines, written_at=written_at)

    def hold(self, parameters: NumaParameters, gpu: int, host: Host, ended: threading.Event) -> None:
        watch_work(host, gpu_index(parameters, gpu), ended, lambda _: True)

    def undo(self, parameters: NumaParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        return end_work(host, gpu_index(parameters, gpu), lambda report: f"{report.copy_gbs} GB/s at last")

    def verify_undone(self, parameters: NumaParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return not host.has_work(gpu_index(parameters, gpu))


def alignment(parameters: NumaParameters, gpu: int, host: Host) -> Alignment:
    """Read from sysfs and NVML the NUMA nodes of a GPU: the near and the far one.

    Raises:
        HostError: The machine has one NUMA node, or does not show its topology.
    """
    sample = target_gpu(parameters, gpu, host)
    try:
        return _alignment(parameters, sample, host)
    except (ValueError, KeyError) as error:
        raise HostError(f"cannot make sense of {_NODES} for GPU {sample.index}: {error}") from None


def _alignment(parameters: NumaParameters, sample: GpuSample, host: Host) -> Alignment:
    """Read the alignment. Raises HostError, and ValueError or KeyError for files with another form."""
    device = f"/sys/bus/pci/devices/{sample.pci_bus_id}.0"
    own = int(host.read_file(f"{device}/numa_node"))
    if own < 0:
        raise HostError(f"{device}/numa_node is {own}: the firmware does not report where GPU {sample.index} is")
    nodes = parse_cpus(host.read_file(f"{_NODES}/online"))
    cpus = {node: parse_cpus(host.read_file(f"{_NODES}/node{node}/cpulist")) for node in nodes}
    distances = dict(zip(nodes, map(int, host.read_file(f"{_NODES}/node{own}/distance").split()), strict=True))
    others = [node for node in nodes if node != own and cpus[node]]
    if not others:
        raise HostError(
            f"this machine has no CPUs but those of node {own}, next to GPU {sample.index}: there is no far node"
        )
    far = max(others, key=lambda node: distances[node]) if parameters.far_node is None else parameters.far_node
    if far not in others:
        raise HostError(f"node {far} is not one with CPUs that is far from GPU {sample.index}; those are {others}")
    near = parse_cpus(host.read_file(f"{device}/local_cpulist"))
    return Alignment(own, near or cpus[own], sample.cpu_affinity, far, cpus[far], distances[far])


def _rate(node: int, report: WorkReport) -> float:
    """Return GB/s. Raises HostError if nothing was copied, or not from memory of that node."""
    if report.memory_node != node:
        raise HostError(f"the canary copied from memory that was not bound to NUMA node {node}")
    if not report.copy_gbs:
        raise HostError("the canary copied nothing to the GPU")
    return report.copy_gbs
