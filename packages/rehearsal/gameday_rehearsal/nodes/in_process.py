"""A host of the GPU model in this very process: to play a fault in an instant and read its effect.

It is the model that `gameday.host.virtual` reaches by HTTP, on a clock that moves only when a test moves it.
"""

from __future__ import annotations

import asyncio
import shlex
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence

from gameday.errors import HostError
from gameday.faults.optional import prior_state_of
from gameday.faults.registry import fault_for
from gameday.host.base import (
    ApiServer,
    GpuSample,
    Listener,
    LoadResult,
    ProgramResult,
    WorkOrder,
    WorkReport,
)
from gameday.host.kernel_log import encode_record
from gameday.plan.fault import FaultParameters
from gameday_rehearsal.nodes.dcgm import DcgmCache
from gameday_rehearsal.nodes.gpus import GpuFleet
from gameday_rehearsal.nodes.host_calls import MachineCalls
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs.run import run_program
from gameday_rehearsal.nodes.work import ModelWork, end_work

# Each look at the GPUs lets this much time pass, so that the effects of a change happen.
_A_LOOK_S = 0.1


class Clock:
    """Real time, plus an offset."""

    def __init__(self) -> None:
        self._added_s = 1000.0

    def __call__(self) -> float:
        return self._added_s + time.monotonic()

    def pass_by(self, seconds: float) -> None:
        self._added_s += seconds


class ModelHost(MachineCalls):
    """A Host on the model; `did` lists what it was asked to change or run, as a person would type it."""

    is_virtual = True

    def __init__(self, gpus: int = 4) -> None:
        self.clock = Clock()
        self.fleet = GpuFleet(["a"], gpus, self.clock)
        super().__init__(Machine(0, "a", self.fleet, DcgmCache(self.fleet, self.clock), lambda *_: None, boot_s=0.01))
        self.did: list[str] = []

    def write_kernel_log(self, record: str) -> None:
        self.did.append(f"write to /dev/kmsg: {record}")
        super().write_kernel_log(encode_record(record).decode())

    def run(self, argv: Sequence[str], timeout_s: float, ended: threading.Event | None = None) -> ProgramResult:
        self.did.append(f"run: {shlex.join(argv)}")
        return asyncio.run(run_program(self.machine, list(argv), timeout_s))

    def write_file(self, path: str, content: str) -> None:
        self.did.append(f"write to {path}: {content}")
        super().write_file(path, content)

    def gpus(self) -> list[GpuSample]:
        self.clock.pass_by(_A_LOOK_S)
        return super().gpus()

    def measure_load(self, gpu: int, seconds: float) -> LoadResult:
        return asyncio.run(self.machine.measure_load(gpu, seconds))

    def start_work(self, gpu: int, order: WorkOrder) -> WorkReport:
        if gpu in self.machine.works:
            raise HostError(f"GPU {gpu} has work already")
        self.did.append(f"start work on GPU {gpu}: {order.model_dump_json()}")
        work = ModelWork(self.machine, gpu, order)
        work.begin()
        self.clock.pass_by(_A_LOOK_S)
        return work.report()

    def work_report(self, gpu: int) -> WorkReport | None:
        work = self.machine.works.get(gpu)
        return work.report() if work else None

    def end_work(self, gpu: int) -> WorkReport | None:
        self.did.append(f"end our work on GPU {gpu}")
        last = self.work_report(gpu)
        end_work(self.machine, gpu)
        return last

    def pod_gpus(self, namespace: str, pod: str) -> tuple[str, ...]:
        raise HostError("a model of a node alone has no kubelet")

    def api_server(self) -> ApiServer:
        raise HostError("a model of a node alone has no API server")

    def own_address(self) -> str:
        return "127.0.0.1"

    def listen(self, interface: str) -> Listener:
        raise HostError("a model of a node alone has no network to others")

    def connect(self, interface: str, address: str, port: int, timeout_s: float) -> socket.socket:
        raise HostError("a model of a node alone has no network to others")


def play(parameters: FaultParameters, gpu: int, gpus: int) -> list[str]:
    """Return every command and write with which the fault goes in and out, on a model node with this many GPUs.

    If the model refuses what a node may not do, the last line is the refusal.
    """
    host, fault = ModelHost(gpus), fault_for(parameters)
    lines: list[str] = []
    state: dict[str, str] = {}
    try:
        state = prior_state_of(parameters, gpu, host)
        state |= fault.inject(parameters, gpu, host).undo_state
        lines += _taken(host, "inject: ")
        fault.undo(parameters, gpu, host, state)
        fault.verify_undone(parameters, gpu, host, state)
        lines += _taken(host, "undo: ")
    except HostError as error:
        lines += [*_taken(host, ""), f"the model of a node refuses: {error}"]
    return lines or ["run and write nothing on the host"]


def _taken(host: ModelHost, way: str) -> list[str]:
    """Return each act once, in the order of its first time; most are repeated reads."""
    did, host.did = Counter(host.did), []
    return [f"{way}{what}" + (f" ({times} times)" if times > 1 else "") for what, times in did.items()]
