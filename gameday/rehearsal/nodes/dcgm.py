"""DCGM as its clients see it: a cache of field values, sampled from the GPUs and writable by `dcgmi test --inject`.

An injected value lives in this cache only: NVML and the kernel log never see
it, and the next real sample of the field takes its place
(research/gpu-health.md 2.1). The Xid field is the exception, because DCGM
fills it from NVML's events and not by sampling: it keeps what it holds.

Names, types and help texts are those of dcgm-exporter's counter files
(etc/default-counters.csv, etc/dcp-metrics-included.csv), ids dcgm_fields.h's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gameday.rehearsal.nodes.gpus import (
    FB_RESERVED_MIB,
    FB_TOTAL_MIB,
    IDLE_W,
    MEMORY_CLOCK_MHZ,
    PCIE_GENERATION,
    PCIE_WIDTH,
    Cell,
    GpuFleet,
)

SAMPLE_EVERY_S = 1.0
XID_FIELD = 230
Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Field:
    """One exported field; `read` gives a (nodes, gpus) array, of floats only where DCGM's own type is double."""

    id: int
    name: str
    kind: str
    help: str
    read: Callable[[GpuFleet], Values]


def _whole(read: Callable[[GpuFleet], Values]) -> Callable[[GpuFleet], Values]:
    return lambda fleet: read(fleet).astype(np.int64)


def _constant(value: int) -> Callable[[GpuFleet], Values]:
    return lambda fleet: np.full(fleet.shape, value)


def _busy(fleet: GpuFleet) -> Values:
    return fleet.utilization / 100


FIELDS: tuple[Field, ...] = (
    Field(100, "DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", _whole(lambda f: f.sm_clock)),
    Field(
        101, "DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", _constant(round(MEMORY_CLOCK_MHZ))
    ),
    Field(
        112,
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        "gauge",
        "Current clock event reasons (bitmask of DCGM_CLOCKS_EVENT_REASON_*).",
        lambda f: f.reasons,
    ),
    Field(
        140,
        "DCGM_FI_DEV_MEMORY_TEMP",
        "gauge",
        "Memory temperature (in C).",
        _whole(lambda f: f.memory_temperature.round()),
    ),
    Field(150, "DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", _whole(lambda f: f.temperature.round())),
    Field(155, "DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", lambda f: f.power.round(3)),
    Field(
        156,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since boot (in mJ).",
        _whole(lambda f: f.energy_mj),
    ),
    Field(160, "DCGM_FI_DEV_POWER_MGMT_LIMIT", "gauge", "Power management limit (in W).", lambda f: f.power_limit),
    Field(
        202,
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "counter",
        "Total number of PCIe retries.",
        lambda f: f.pcie_replays,
    ),
    Field(203, "DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", _whole(lambda f: f.utilization)),
    Field(
        204,
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "gauge",
        "Memory utilization (in %).",
        _whole(lambda f: f.utilization * 0.62),
    ),
    Field(206, "DCGM_FI_DEV_ENC_UTIL", "gauge", "Encoder utilization (in %).", _constant(0)),
    Field(207, "DCGM_FI_DEV_DEC_UTIL", "gauge", "Decoder utilization (in %).", _constant(0)),
    Field(XID_FIELD, "DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.", lambda f: f.xid),
    Field(235, "DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "gauge", "PCIe maximum link generation.", _constant(PCIE_GENERATION)),
    Field(236, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "gauge", "PCIe maximum link width.", _constant(PCIE_WIDTH)),
    Field(237, "DCGM_FI_DEV_PCIE_LINK_GEN", "gauge", "PCIe current link generation.", lambda f: f.pcie_generation),
    Field(238, "DCGM_FI_DEV_PCIE_LINK_WIDTH", "gauge", "PCIe current link width.", lambda f: f.pcie_width),
    Field(
        240,
        "DCGM_FI_DEV_POWER_VIOLATION",
        "counter",
        "Throttling duration due to power constraints (in ns).",
        _whole(lambda f: f.power_violation_ns),
    ),
    Field(
        241,
        "DCGM_FI_DEV_THERMAL_VIOLATION",
        "counter",
        "Throttling duration due to thermal constraints (in ns).",
        _whole(lambda f: f.thermal_violation_ns),
    ),
    Field(
        251,
        "DCGM_FI_DEV_FB_FREE",
        "gauge",
        "Framebuffer memory free (in MiB).",
        lambda f: FB_TOTAL_MIB - FB_RESERVED_MIB - f.memory_used_mib,
    ),
    Field(252, "DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", lambda f: f.memory_used_mib),
    Field(
        253,
        "DCGM_FI_DEV_FB_RESERVED",
        "gauge",
        "Framebuffer memory reserved (in MiB).",
        _constant(FB_RESERVED_MIB),
    ),
    Field(
        310,
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "counter",
        "Total number of single-bit volatile ECC errors.",
        lambda f: f.sbe_volatile,
    ),
    Field(
        311,
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "counter",
        "Total number of double-bit volatile ECC errors.",
        lambda f: f.dbe_volatile,
    ),
    Field(
        312,
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
        "counter",
        "Total number of single-bit persistent ECC errors.",
        lambda f: f.sbe_aggregate,
    ),
    Field(
        313,
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
        "counter",
        "Total number of double-bit persistent ECC errors.",
        lambda f: f.dbe_aggregate,
    ),
    Field(
        393,
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for uncorrectable errors",
        lambda f: f.remapped_uncorrectable,
    ),
    Field(
        394,
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for correctable errors",
        lambda f: f.remapped_correctable,
    ),
    Field(
        395,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        "gauge",
        "Whether remapping of rows has failed",
        _whole(lambda f: f.remap_failure),
    ),
    Field(
        396,
        "DCGM_FI_DEV_ROW_REMAP_PENDING",
        "gauge",
        "Whether remapping of rows is pending",
        _whole(lambda f: f.remap_pending),
    ),
    Field(
        409,
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "counter",
        "Total number of NVLink flow-control CRC errors.",
        lambda f: f.nvlink_crc_flit,
    ),
    Field(
        419,
        "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        "counter",
        "Total number of NVLink data CRC errors.",
        lambda f: f.nvlink_crc_data,
    ),
    Field(
        429,
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        "counter",
        "Total number of NVLink retries.",
        lambda f: f.nvlink_replay,
    ),
    Field(
        439,
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        "counter",
        "Total number of NVLink recovery errors.",
        lambda f: f.nvlink_recovery,
    ),
    Field(
        449,
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "counter",
        "Total number of NVLink bandwidth counters for all lanes.",
        _whole(lambda f: f.nvlink_bytes / 1024),
    ),
    Field(526, "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "gauge", "vGPU License status", _constant(0)),
    Field(
        1001,
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "gauge",
        "Ratio of time the graphics engine is active.",
        lambda f: _busy(f).round(6),
    ),
    Field(
        1004,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "gauge",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        lambda f: (_busy(f) * 0.52).round(6),
    ),
    Field(
        1005,
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "gauge",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
        lambda f: (_busy(f) * 0.41).round(6),
    ),
    Field(
        1009,
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        "gauge",
        "The rate of data transmitted over the PCIe bus - including both protocol headers and data payloads - "
        "in bytes per second.",
        _whole(lambda f: 4e5 + 2.1e9 * _busy(f)),
    ),
    Field(
        1010,
        "DCGM_FI_PROF_PCIE_RX_BYTES",
        "gauge",
        "The rate of data received over the PCIe bus - including both protocol headers and data payloads - "
        "in bytes per second.",
        _whole(lambda f: 3e5 + 3.4e9 * (f.power - IDLE_W).clip(0) / 610),
    ),
)
BY_ID = {field.id: field for field in FIELDS}


@dataclass(frozen=True)
class Injected:
    value: float
    until: float  # monotonic seconds; infinite for the Xid field


class DcgmCache:
    """The host engines of all nodes. `running` and `collecting` are per node."""

    def __init__(self, fleet: GpuFleet, clock: Callable[[], float] = time.monotonic) -> None:
        self.fleet = fleet
        self._clock = clock
        self._injected: dict[int, dict[Cell, Injected]] = {}
        self.running = np.ones(fleet.shape[0], bool)
        self.exporting = np.ones(fleet.shape[0], bool)
        self.collecting = np.ones(fleet.shape[0], bool)

    def inject(self, cell: Cell, field: int, value: float, offset_s: float = 1.0) -> None:
        """Latest until a real sample is newer than now + offset; with collection paused none ever is."""
        sampled = field != XID_FIELD and self.collecting[cell[0]]
        until = math.ceil((self._clock() + offset_s) / SAMPLE_EVERY_S) * SAMPLE_EVERY_S if sampled else math.inf
        self._injected.setdefault(field, {})[cell] = Injected(value, until)

    def clear_xid(self, cell: Cell) -> None:
        """A real Xid, as NVML's events tell it, takes the place of an injected one."""
        self._injected.get(XID_FIELD, {}).pop(cell, None)

    def restart(self, node: int) -> None:
        """A host engine that starts anew knows nothing that was injected or paused."""
        self.running[node] = self.collecting[node] = True
        for cells in self._injected.values():
            for cell in [cell for cell in cells if cell[0] == node]:
                del cells[cell]

    def resume(self, node: int) -> None:
        """Sampling goes on: everything injected while it was paused is overwritten, save the Xid."""
        self.collecting[node] = True
        for field, cells in self._injected.items():
            for cell in [cell for cell in cells if cell[0] == node and field != XID_FIELD]:
                del cells[cell]

    def read(self, field: Field) -> Values:
        """The cache's values, (nodes, gpus); the fleet must have been advanced."""
        sampled = field.read(self.fleet)
        live = self._live(field.id)
        if not live:
            return sampled
        values = sampled.copy()
        for cell, injected in live.items():
            values[cell] = injected.value
        return values

    def latest(self, cell: Cell, field: int) -> float | None:
        """One cached value; None where the field is blank (no such field, a lost GPU, collection paused)."""
        if injected := self._live(field).get(cell):
            return injected.value
        if field not in BY_ID or not self.shown(BY_ID[field])[cell]:
            return None
        return float(BY_ID[field].read(self.fleet)[cell])

    def shown(self, field: Field) -> npt.NDArray[np.bool_]:
        """Where the exporter has a value: not for lost GPUs, save their last Xid."""
        up = self.fleet.powered & self.running & self.collecting
        if field.id == XID_FIELD:
            return np.broadcast_to(up[:, None], self.fleet.shape)
        return up[:, None] & ~self.fleet.lost & ~self.fleet.removed

    def _live(self, field: int) -> dict[Cell, Injected]:
        cells = self._injected.get(field)
        if not cells:
            return {}
        now = self._clock()
        for cell in [cell for cell, injected in cells.items() if injected.until <= now]:
            del cells[cell]
        return cells
