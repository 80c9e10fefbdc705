"""The methods of `gameday.host.base.Host` on the model of a node, as its agents call them by name."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Annotated, Any

from pydantic import Field, validate_call

from gameday.errors import HostError
from gameday.host.base import DcgmEngines, GpuSample, GpuUser, Host, LoadResult, ProgramResult, WorkOrder, WorkReport
from gameday_rehearsal.nodes.files import read_file, write_file
from gameday_rehearsal.nodes.kubelet import Kubelet
from gameday_rehearsal.nodes.machine import KUBELET, Machine
from gameday_rehearsal.nodes.network import address_of
from gameday_rehearsal.nodes.programs.run import run_program
from gameday_rehearsal.nodes.ways import Ways
from gameday_rehearsal.nodes.work import end_work, run_work

_LONGEST_WORK_S = 3600.0
"""Seconds of one program or measurement; more is a mistake in the request."""
_Seconds = Annotated[float, Field(ge=0, le=_LONGEST_WORK_S)]
_Timeout = Annotated[float, Field(gt=0, le=_LONGEST_WORK_S)]


class MachineCalls:
    """The calls that a machine answers at once, without its kubelet and without other machines."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def write_kernel_log(self, record: str) -> None:
        try:
            self.machine.log.write(record)
        except OSError as error:
            raise HostError(f"/dev/kmsg: {error.strerror}") from None

    def read_kernel_log(self) -> list[str]:
        try:
            self.machine.log.require_open()
        except OSError as error:
            raise HostError(f"/dev/kmsg: {error.strerror}") from None
        return self.machine.log.lines()

    def read_file(self, path: str) -> str:
        return read_file(self.machine, path)

    def write_file(self, path: str, content: str) -> None:
        write_file(self.machine, path, content)

    def boot_id(self) -> str:
        return self.machine.boot_id

    def gpus(self) -> list[GpuSample]:
        return self.machine.samples()

    def steer_work(self, gpu: int, utilization: Annotated[float, Field(ge=0, le=1)]) -> None:
        work = self.machine.works.get(gpu)
        if work is None:
            raise HostError(f"GPU {gpu} of {self.machine.name} has no work whose load could be changed")
        work.steer(utilization)

    def has_work(self, gpu: int) -> bool:
        return gpu in self.machine.works

    def gpu_users(self, gpu: int) -> tuple[GpuUser, ...]:
        self.machine.cell(gpu)  # refuses a GPU that the machine lacks
        return self.machine.gpu_users(gpu)

    def dcgm_engines(self) -> DcgmEngines:
        return self.machine.dcgm_engines()


class HostCalls(MachineCalls):
    """All calls: also those that take time, and those to the kubelet and to the network."""

    def __init__(self, machine: Machine, kubelets: Mapping[str, Kubelet], ways: Ways) -> None:
        super().__init__(machine)
        self._kubelets = kubelets
        self._ways = ways

    async def run(self, argv: Annotated[list[str], Field(min_length=1)], timeout_s: _Timeout) -> ProgramResult:
        return await run_program(self.machine, argv, timeout_s)

    async def measure_load(self, gpu: int, seconds: _Seconds) -> LoadResult:
        return await self.machine.measure_load(gpu, seconds)

    def start_work(self, gpu: int, order: WorkOrder) -> AsyncGenerator[WorkReport, None]:
        """Return the work's reports; it ends with them."""
        self.machine.cell(gpu)
        return run_work(self.machine, gpu, order)

    def end_work(self, gpu: int) -> None:
        end_work(self.machine, gpu)

    def pod_gpus(self, namespace: str, pod: str) -> tuple[str, ...]:
        """Return the ids of a pod's GPUs, which the kubelet knows as long as it runs."""
        if not self.machine.is_active(KUBELET):
            raise HostError("the kubelet's pod-resources socket does not answer: Connection refused")
        kubelet = self._kubelets[self.machine.name]
        if not kubelet.has_pod_resources:
            raise HostError("the kubelet's pod-resources socket does not answer: No such file or directory")
        holders = {gpu.uuid: kubelet.devices.holder(gpu.index) for gpu in self.machine.gpus}
        ids = tuple(id for id, one in holders.items() if one and (one.namespace, one.pod) == (namespace, pod))
        if not ids:
            raise HostError(f"the kubelet lists no GPU of pod {namespace}/{pod}")
        return ids

    def listen(self, interface: str) -> str:
        """Return the interface's address; the agent itself listens."""
        return address_of(self.machine.network, interface)

    async def connect(self, interface: str, address: str, port: Annotated[int, Field(ge=1, le=65_535)]) -> int:
        """Return the port at which a way through the model's network begins."""
        return await self._ways.open(self.machine, interface, address, port)


CALLS: Mapping[str, Callable[..., Any]] = {
    name: validate_call(getattr(HostCalls, name))
    for name in vars(Host)
    if hasattr(HostCalls, name) and not name.startswith("_")
}
"""The methods that a request may name, each of which refuses arguments of another type or name."""
