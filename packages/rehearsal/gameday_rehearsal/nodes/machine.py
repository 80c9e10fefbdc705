"""A virtual machine: power, boot, kernel log, services, and the hardware events of its GPUs.

It knows nothing of Kubernetes; the kubelet that runs on it listens to its power and its GPUs through
`MachineListener`, and so do others.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from gameday.errors import HostError, MachineDownError
from gameday.faults.component_pods import Component, component_of
from gameday.faults.dcgm_engines import asks_another_engine
from gameday.host.base import DcgmEngine, DcgmEngines, GpuSample, GpuUser, LoadResult, WorkReport
from gameday.xid.lines import BEAT
from gameday_rehearsal.nodes.components import Components
from gameday_rehearsal.nodes.dcgm import DcgmCache
from gameday_rehearsal.nodes.gpus import (
    FB_TOTAL_MIB,
    HARDWARE_SLOWDOWN_C,
    LOAD_TAKES_MIB,
    MAX_OPERATING_C,
    MEMORY_CLOCK_MHZ,
    NVLINKS,
    PCIE_GENERATION,
    PCIE_WIDTH,
    POWER_LIMIT_W,
    SM_CLOCK_MAX_MHZ,
    Cell,
    GpuFleet,
)
from gameday_rehearsal.nodes.identity import (
    DRIVER_VERSION,
    KERNEL_VERSION,
    MODEL,
    GpuIdentity,
    gpu_identities,
    seeded,
)
from gameday_rehearsal.nodes.kernel_log import KernelLog, KernelRecord
from gameday_rehearsal.nodes.network import Network
from gameday_rehearsal.nodes.numa import CPUS_OF_NODE, numa_node

log = logging.getLogger(__name__)

MIB = 1024 * 1024
KUBELET = "kubelet"
HOST_ENGINE = "nvidia-dcgm"
EXPORTER = "nvidia-dcgm-exporter"
UNITS = ("containerd", KUBELET, EXPORTER, HOST_ENGINE, "nvidia-fabricmanager", "nvidia-persistenced", "ssh")
# DcgmKmsgReader.cpp: the bare form of the codes that it parses.
_READ_BY_DCGM = re.compile(r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:]+)\): (?P<code>79|119|120),")
_DAY_S = 86_400.0
_LOAD_SETTLES_S = 0.05
_PERSISTENCED_PID = 1187
_ENGINE_PID = 1190


class MachineListener:
    """Base of everything on a machine that is told when its power, its GPUs or its kernel log change."""

    async def going_down(self) -> None:
        """Services have to end now; the power goes when this returns."""

    def down(self) -> None:
        """The power is off."""

    def up(self) -> None:
        """The machine has booted."""

    def gpus_changed(self) -> None:
        """GPUs were lost, removed or found again."""

    def logged(self, record: KernelRecord) -> None:
        """The kernel log has a new record."""

    def kubelet_started(self) -> None:
        """The kubelet's service runs."""


class Work(Protocol):
    def steer(self, utilization: float) -> None: ...

    def stop(self) -> None: ...

    def report(self) -> WorkReport: ...


class Machine:
    def __init__(
        self,
        index: int,
        name: str,
        fleet: GpuFleet,
        cache: DcgmCache,
        ship: Callable[[str, KernelRecord], None],
        boot_s: float,
    ) -> None:
        self.index = index
        self.name = name
        self.fleet = fleet
        self.cache = cache
        self.gpus: tuple[GpuIdentity, ...] = gpu_identities(name, fleet.shape[1])
        self._ship = ship
        self._unshipped: list[KernelRecord] = []  # while the shipper or the collector is frozen, or has no pod here
        self._in_cluster = True
        self.log = KernelLog(self._logged)
        self.components = Components(self._component_changed)
        self.away: set[Component] = set()  # components with no pod here, if they need one
        self.hold_log_store: Callable[[bool], None] = lambda _: None  # set if a log store can be reached
        self.lab_control: Path | None = None  # the lab's control socket, if the node is one of a lab's
        self.extra_files: dict[str, str] = {}
        self.gpu_processes: dict[int, dict[int, str]] = {}  # GPU index -> pid -> program
        self.monitors: set[int] = set()  # those of them that keep a GPU open and never compute
        self.required_by: dict[str, tuple[str, ...]] = {}  # unit -> units that name it in Requires=
        self.pod_of: dict[int, str] = {}  # pid -> UID of its pod
        self.works: dict[int, Work] = {}  # what agents are working on, by GPU
        self.listeners: list[MachineListener] = []
        self._boot_s = boot_s
        self._rebooting: asyncio.Task[None] | None = None
        self.timers: dict[str, asyncio.TimerHandle] = {}  # systemd's transient ones, by name
        self.commands: set[asyncio.Task[object]] = set()  # what its elapsed timers run
        self.wake_at: float | None = None  # the real-time clock's alarm, epoch seconds
        self.powered = True
        self._boot()
        # A machine that has been up for days, like most when something breaks.
        self.log.boot_was(seeded(name, "uptime").uniform(1 * _DAY_S, 40 * _DAY_S))

    def cell(self, gpu: int) -> Cell:
        """Return the GPU's cell. Raises HostError for a GPU that the driver does not know."""
        if not 0 <= gpu < len(self.gpus) or self.fleet.removed[self.index, gpu]:
            raise HostError(f"{self.name} has no GPU {gpu}; the driver knows {self.known_gpus()}")
        return (self.index, gpu)

    def occupy(self, gpus: Iterable[int], pid: int, command: str, pod: str) -> None:
        """Note that a process of a pod has these GPUs open; `pod` is its UID."""
        self.pod_of[pid] = pod
        for gpu in gpus:
            self.gpu_processes.setdefault(gpu, {})[pid] = command

    def vacate(self, pid: int) -> None:
        """Note that a process has ended, so that it has no GPU open."""
        self.pod_of.pop(pid, None)
        for processes in self.gpu_processes.values():
            processes.pop(pid, None)

    def set_pod_load(self, gpus: Iterable[int], load: float) -> None:
        """Set the load that pods put on these GPUs."""
        for gpu in gpus:
            self.fleet.set_pod_load((self.index, gpu), load)

    def worked(self, gpus: Sequence[int]) -> tuple[float, Sequence[float]]:
        """Return the model's time, and the seconds at full pace that these GPUs have worked by then."""
        return self.fleet.worked(self.index, gpus)

    def known_gpus(self) -> list[int]:
        return [gpu.index for gpu in self.gpus if not self.fleet.removed[self.index, gpu.index]]

    def gpu_serves(self, gpu: int) -> bool:
        return not (self.fleet.lost[self.index, gpu] or self.fleet.removed[self.index, gpu])

    def _logged(self, record: KernelRecord) -> None:
        if self._ships:
            self._ship(self.name, record)
        else:
            self._unshipped.append(record)
        self._read_by_dcgm(record)
        for listener in self.listeners:
            listener.logged(record)

    def beat(self) -> None:
        """Print the shipper's sign of life, which goes beside the kernel log and not into it."""
        if self._ships:
            self._ship(self.name, KernelRecord(self.log.uptime_s, time.time_ns(), 1, 6, BEAT))

    def set_in_cluster(self, *, present: bool) -> None:
        """Lose the pods of every DaemonSet with the Node object, the shipper's included, or get them back.

        A shipper that comes back beats first, and prints what the kernel has logged meanwhile.
        """
        if present == self._in_cluster:
            return
        self._in_cluster = present
        if self._ships:
            self.beat()
            self._ship_kept(stamped_late=True)

    @property
    def _ships(self) -> bool:
        frozen = self.components.frozen(Component.SHIPPER) or self.components.frozen(Component.COLLECTOR)
        return self._in_cluster and not frozen

    def _ship_kept(self, stamped_late: bool) -> None:
        """Ship what was kept. The runtime stamps a line when `dmesg` prints it, which may be only now."""
        kept, self._unshipped = self._unshipped, []
        for record in kept:
            self._ship(self.name, replace(record, wall_ns=time.time_ns()) if stamped_late else record)

    @property
    def _exporter_answers(self) -> bool:
        """Return True if the exporter and its host engine answer: units here or pods, any of which may be stopped."""
        needed = (Component.EXPORTER, Component.HOST_ENGINE)
        return self.units[EXPORTER] and not any(self.components.frozen(one) or one in self.away for one in needed)

    def set_away(self, away: Iterable[Component]) -> None:
        """Note the components that have no running pod. A host engine that comes back has an empty cache."""
        before, self.away = self.away, set(away)
        if Component.HOST_ENGINE in before - self.away:
            self.cache.restart(self.index)
        if Component.EXPORTER in before - self.away:
            self.cache.start_exporter(self.index)
        self.cache.exporting[self.index] = self._exporter_answers

    def _component_changed(self, component: Component, frozen: bool) -> None:
        match component:
            case Component.EXPORTER | Component.HOST_ENGINE:
                self.cache.exporting[self.index] = self._exporter_answers
            case Component.LOG_STORE:
                self.hold_log_store(frozen)
            case Component.SHIPPER | Component.COLLECTOR if self._ships:
                # A line that only the collector kept has its stamp.
                self._ship_kept(stamped_late=component is Component.SHIPPER)

    def _read_by_dcgm(self, record: KernelRecord) -> None:
        """Play DCGM's own kernel-log reader, which takes a user's line for the driver's."""
        found = _READ_BY_DCGM.match(record.text)
        gpu = next((gpu.index for gpu in self.gpus if found and gpu.pci == found["pci"].lower()), None)
        if found and gpu is not None and self.cache.running[self.index]:
            self.cache.xid_event((self.index, gpu), int(found["code"]))

    # Services

    def is_active(self, unit: str) -> bool:
        return self.units[unit]

    def set_unit(self, unit: str, active: bool) -> None:
        self.units[unit] = active
        for other in () if active else self.required_by.get(unit, ()):
            self.set_unit(other, active=False)
        if unit == HOST_ENGINE:
            self.cache.restart(self.index)
            self.cache.running[self.index] = active
            for record in self.log.records() if active else ():
                self._read_by_dcgm(record)  # from the ring buffer's begin
        elif unit == EXPORTER:
            self.cache.start_exporter(self.index)
            self.cache.exporting[self.index] = self._exporter_answers
        elif unit == "nvidia-persistenced":
            self.fleet.persistence[self.index] = active
        elif unit == KUBELET and active:
            for listener in self.listeners:
                listener.kubelet_started()

    # Power

    @property
    def going_down(self) -> bool:
        return self.powered and self._rebooting is not None and not self._rebooting.done()

    def reboot(self, after_s: float = 0.2) -> None:
        """Go down in a moment and come back `boot_s` later. A second call meanwhile is the same reboot."""
        if self._rebooting is None or self._rebooting.done():
            self._rebooting = asyncio.create_task(self._reboot(after_s))

    def power_off(self, after_s: float = 0.2) -> None:
        """Go down in a moment and stay down until the clock's alarm, or forever without one."""
        if self._rebooting is None or self._rebooting.done():
            self._rebooting = asyncio.create_task(self._reboot(after_s, off=True))

    async def _reboot(self, after_s: float, off: bool = False) -> None:
        await asyncio.sleep(after_s)
        await asyncio.gather(*(listener.going_down() for listener in self.listeners))
        self.fleet.advance()
        self.powered = self.fleet.powered[self.index] = False
        self.gpu_processes.clear()
        self.monitors.clear()
        self.pod_of.clear()
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()
        self._unshipped.clear()  # they were in the ring buffer
        self.components.reboot()
        for listener in self.listeners:
            listener.down()
        if off:
            await asyncio.sleep(math.inf if self.wake_at is None else max(0.0, self.wake_at - time.time()))
            self.wake_at = None  # the alarm goes off once
        await asyncio.sleep(self._boot_s)
        self.fleet.boot(self.index)
        self.cache.restart(self.index)
        self.fleet.powered[self.index] = True
        self._boot()
        self.powered = True
        for listener in self.listeners:
            listener.up()

    def _boot(self) -> None:
        self.boot_id = str(uuid.uuid4())
        self.booted_s = int(time.time())
        self.units = dict.fromkeys(UNITS, True)
        self.network = Network.booted(self.index, len(self.gpus))
        self.cache.exporting[self.index] = self._exporter_answers
        self.cache.start_exporter(self.index)
        self._greeted: set[int] = set()
        self.log.boot()
        if not self.powered:
            self.beat()  # first of all, as the new pod does
        self.log.devkmsg = "ratelimit"
        self.log.driver(f"Linux version {KERNEL_VERSION} (buildd@lcy02-amd64-001) #63-Ubuntu SMP PREEMPT_DYNAMIC", 5)
        self.log.driver(f"Command line: BOOT_IMAGE=/boot/vmlinuz-{KERNEL_VERSION} root=/dev/md0 ro iommu=pt")
        for gpu in self.gpus:
            self.log.driver(f"pci {gpu.sysfs_name}: [10de:2330] type 00 class 0x030200")
        self.log.driver("nvidia-nvlink: Nvlink Core is being initialized, major device number 236")
        self.log.driver(f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER_VERSION}  Release Build", 5)
        self.log.driver("nvidia-uvm: Loaded the UVM driver, major device number 511.")

    # Hardware events: the driver logs them, and NVML and DCGM see them.

    def record_xid(self, gpu: int, code: int, text: str) -> None:
        """Record a real Xid of the driver: a kernel line and an NVML event, unlike one written from user space."""
        self.log_xid(gpu, code, text)
        self.fleet.xid[self.index, gpu] = code
        self.cache.nvml_xid((self.index, gpu))

    def log_xid(self, gpu: int, code: int, text: str) -> None:
        """Log an Xid's line. Before the first one of a GPU the driver says which GPU that is."""
        identity = self.gpus[gpu]
        if gpu not in self._greeted:
            self._greeted.add(gpu)
            self.log.driver(f"NVRM: GPU at PCI:{identity.pci}: {identity.uuid}", 3)
            self.log.driver(f"NVRM: GPU Board Serial Number: {identity.serial}", 3)
        self.log.driver(f"NVRM: Xid (PCI:{identity.pci}): {code}, {text}", 3)

    def lose_gpu(self, gpu: int) -> None:
        """Let the GPU fall off the bus: Xid 79, and only a reboot brings it back."""
        self.fleet.advance()
        self.fleet.lost[self.index, gpu] = True
        self.record_xid(gpu, 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
        self.log.driver(f"NVRM: GPU {self.gpus[gpu].sysfs_name}: GPU has fallen off the bus.", 3)
        self._gpus_changed()

    def double_bit_error(self, gpu: int) -> None:
        """Cause an uncorrectable ECC error: Xid 48, and a row marked for remapping (Xid 63), active after a reset."""
        cell = self.cell(gpu)
        self.fleet.dbe_volatile[cell] += 1
        self.fleet.dbe_aggregate[cell] += 1
        self.fleet.remap_pending[cell] = True
        self.record_xid(gpu, 48, "pid='<unknown>', name=<unknown>, DBE (double bit error) ECC Error")
        self.record_xid(
            gpu,
            63,
            "pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
        )

    def pci_remove(self, gpu: int) -> None:
        """Do `echo 1 > …/remove`. Raises HostError if the real write would hang because the GPU is in use."""
        if self.gpu_users(gpu):
            name = self.gpus[gpu].sysfs_name
            self.log.driver(f"NVRM: Attempting to remove device {name} with non-zero usage count!", 3)
            raise HostError(f"removing {name} hangs while a process uses the GPU; stop its users first")
        self.fleet.advance()
        self.fleet.removed[self.index, gpu] = True
        self._gpus_changed()

    def pci_rescan(self) -> None:
        """Do `echo 1 > /sys/bus/pci/rescan`: what was removed is enumerated and initialised again."""
        for gpu in self.gpus:
            if self.fleet.removed[self.index, gpu.index]:
                self.log.driver(f"pci {gpu.sysfs_name}: [10de:2330] type 00 class 0x030200")
                self.fleet.reset((self.index, gpu.index))
                self.fleet.removed[self.index, gpu.index] = self.fleet.lost[self.index, gpu.index] = False
        self._gpus_changed()

    def gpu_users(self, gpu: int) -> tuple[GpuUser, ...]:
        """Return the processes that have the GPU open: its jobs, and the daemon that keeps the driver loaded."""
        users = [
            GpuUser(pid=pid, command=command, pod=self.pod_of.get(pid, ""))
            for pid, command in self.gpu_processes.get(gpu, {}).items()
        ]
        if self.units["nvidia-persistenced"] and self.fleet.persistence[self.index, gpu]:
            users.append(GpuUser(pid=_PERSISTENCED_PID, command="/usr/bin/nvidia-persistenced --verbose"))
        return tuple(users)

    def compute_processes(self, gpu: int) -> dict[int, str]:
        """Return the programs that compute on the GPU, by process id: not those that only watch it."""
        processes = self.gpu_processes.get(gpu, {})
        return {pid: program for pid, program in processes.items() if pid not in self.monitors}

    def dcgm_engines(self) -> DcgmEngines:
        """Return the node's host engine, a unit or a pod, and that of each exporter's pod that asks no other."""
        pods = [(component_of(sandbox.labels), sandbox) for sandbox in self.components.sandboxes()]
        engines = []
        if self.units[HOST_ENGINE] and Component.HOST_ENGINE not in self.away:
            pod = next((sandbox.uid for component, sandbox in pods if component is Component.HOST_ENGINE), "")
            engines.append(DcgmEngine(pid=_ENGINE_PID, command="nv-hostengine -n", pod=pod, embedded=False))
        for pid, (component, sandbox) in enumerate(pods, _ENGINE_PID + 1):
            asks = any(asks_another_engine(one.argv, dict(one.environment)) for one in sandbox.containers)
            if component is Component.EXPORTER and not asks:
                command = "/usr/bin/dcgm-exporter"
                engines.append(DcgmEngine(pid=pid, command=command, pod=sandbox.uid, embedded=True))
        return DcgmEngines(engines=tuple(engines))

    def _gpus_changed(self) -> None:
        for listener in self.listeners:
            listener.gpus_changed()

    # NVML

    def samples(self) -> list[GpuSample]:
        self.fleet.advance()
        return [self._sample(gpu) for gpu in self.gpus if not self.fleet.removed[self.index, gpu.index]]

    def _sample(self, gpu: GpuIdentity) -> GpuSample:
        fleet, cell = self.fleet, (self.index, gpu.index)
        if fleet.lost[cell]:
            return GpuSample(index=gpu.index, uuid=gpu.uuid, name=MODEL, pci_bus_id=gpu.pci, lost=True)
        return GpuSample(
            index=gpu.index,
            uuid=gpu.uuid,
            name=MODEL,
            pci_bus_id=gpu.pci,
            temperature_c=round(float(fleet.temperature[cell])),
            memory_temperature_c=round(float(fleet.memory_temperature[cell])),
            max_operating_c=MAX_OPERATING_C,
            slowdown_c=HARDWARE_SLOWDOWN_C,
            power_w=round(float(fleet.power[cell]), 3),
            power_limit_w=float(fleet.power_limit[cell]),
            power_limit_default_w=POWER_LIMIT_W,
            sm_clock_mhz=float(fleet.sm_clock[cell]),
            sm_clock_max_mhz=SM_CLOCK_MAX_MHZ,
            memory_clock_mhz=MEMORY_CLOCK_MHZ,
            utilization_pct=float(fleet.utilization[cell]),
            memory_used_bytes=int(fleet.memory_used_mib[cell]) * MIB,
            memory_total_bytes=FB_TOTAL_MIB * MIB,
            clocks_event_reasons=int(fleet.reasons[cell]),
            ecc_mode=bool(fleet.ecc[cell]),
            ecc_mode_pending=bool(fleet.ecc_pending[cell]),
            ecc_dbe_volatile=int(fleet.dbe_volatile[cell]),
            ecc_sbe_volatile=int(fleet.sbe_volatile[cell]),
            remapped_rows_correctable=int(fleet.remapped_correctable[cell]),
            remapped_rows_uncorrectable=int(fleet.remapped_uncorrectable[cell]),
            row_remap_pending=bool(fleet.remap_pending[cell]),
            row_remap_failure=bool(fleet.remap_failure[cell]),
            nvlinks_active=int(fleet.nvlinks[cell]),
            nvlinks_supported=NVLINKS,
            nvlink_mbps=int(fleet.nvlink_mbps[cell]) if fleet.nvlinks[cell] else None,
            pcie_generation=int(fleet.pcie_generation[cell]),
            pcie_generation_max=PCIE_GENERATION,
            pcie_width=int(fleet.pcie_width[cell]),
            pcie_width_max=PCIE_WIDTH,
            pcie_replay_counter=int(fleet.pcie_replays[cell]),
            persistence_mode=bool(fleet.persistence[cell]),
            cpu_affinity=CPUS_OF_NODE[numa_node(gpu.index, len(self.gpus))],
            compute_pids=tuple(self.compute_processes(gpu.index)),
        )

    async def measure_load(self, gpu: int, seconds: float) -> LoadResult:
        """Load the GPU for `seconds` and return what a GEMM and a copy reached meanwhile. Raises HostError."""
        cell = self.cell(gpu)
        if self.fleet.lost[cell]:
            return LoadResult(gpu=gpu, gemm_tflops=None, memory_bandwidth_gbs=None, detail="GPU is lost")
        if self.fleet.memory_free_mib(cell) < LOAD_TAKES_MIB:
            detail = f"OutOfMemoryError: Out of memory allocating {LOAD_TAKES_MIB * MIB:,} bytes"
            return LoadResult(gpu=gpu, gemm_tflops=None, memory_bandwidth_gbs=None, detail=detail)
        boot_id, pid = self.boot_id, 1_000_000 + gpu
        self.fleet.set_burst_load(cell, 1.0)
        self.gpu_processes.setdefault(gpu, {})[pid] = "gameday-load"
        started = time.monotonic()
        try:
            await asyncio.sleep(max(_LOAD_SETTLES_S, seconds))
            self.fleet.advance()
            tflops, copied = self.fleet.gemm_tflops(cell), self.fleet.copy_gbs(cell)
        finally:
            self.fleet.set_burst_load(cell, 0.0)
            self.gpu_processes.get(gpu, {}).pop(pid, None)
        if not self.powered or self.boot_id != boot_id:
            raise MachineDownError(f"{self.name} went down while GPU {gpu} was under load")
        if not self.gpu_serves(gpu):
            return LoadResult(gpu=gpu, gemm_tflops=None, memory_bandwidth_gbs=None, detail="GPU was lost under load")
        return LoadResult(
            gpu=gpu,
            gemm_tflops=round(tflops, 1),
            memory_bandwidth_gbs=round(copied, 1),
            wrong_results=int(self.fleet.wrong_results[cell]),
            detail=f"modelled H100, {time.monotonic() - started:.2f} s",
        )
