"""DCGM as its clients see it: a cache of field values, sampled from the GPUs and writable by `dcgmi test --inject`.

An injected value lives only in this cache. NVML and the kernel log never see it, and the next real sample of the field
replaces it (docs/sources.md, DCGM injection). The newest time stamp counts, not the last call. A sample is due one
interval after the injected one's own stamp, and only for a field that somebody watches. The Xid field is the exception,
because DCGM fills it from NVML's events and not by sampling: it keeps its value. DCGM 4.6 also reads Xids 79, 119 and
120 in the kernel log, in the bare form, and its health module is not told of them. After a 119 it makes no more driver
calls, takes no more events, and within a second every field is blank, the Xid too, until a restart that reads the log
again.

While collection is paused no GPU is active: no sample is taken and the cache keeps the last ones. DCGM's help text says
N/A, but its code does not: the update loop skips a paused GPU and writes no blank (DCGM 3.2 to 4.6,
DcgmCacheManager.cpp, ActuallyUpdateAllFields), so that an exporter repeats the old values.

Ids are those of dcgm_fields.h, names those of dcgm-exporter's counters files.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gameday_rehearsal.nodes.exporter_process import ExporterProcesses
from gameday_rehearsal.nodes.gpus import (
    FB_RESERVED_MIB,
    FB_TOTAL_MIB,
    HARDWARE_SLOWDOWN_C,
    IDLE_W,
    MAX_OPERATING_C,
    MEMORY_CLOCK_MHZ,
    PCIE_GENERATION,
    PCIE_WIDTH,
    Cell,
    GpuFleet,
)

SAMPLE_EVERY_S = 1.0
DOUBLE_FIELDS = frozenset((155, 160, 254, 1001, 1004, 1005, 1218))  # DCGM_FT_DOUBLE in dcgm_fields.cpp; rest: int64
_INT64_BLANK, _FP64_BLANK = 0x7FFFFFFFFFFFFFF0, 140737488355328.0  # dcgm_structs.h: this and above is not a value
_BLINDING_XID = 119  # ReadEnvForFatalXids, DcgmCacheManager.cpp
XID_FIELD = 230
# For dcgm-exporter, which has 5 minutes by default; here an alert on the count has to end with a game-day.
XID_WINDOW_S = 30
Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Field:
    """A field; `read` gives a (nodes, gpus) array, of floats only if DCGM's own type is double.

    Without `read` the model's GPUs lack the field, or nobody knows it: it is blank until a value is injected.
    """

    id: int
    name: str
    read: Callable[[GpuFleet], Values] | None


def _whole(read: Callable[[GpuFleet], Values]) -> Callable[[GpuFleet], Values]:
    return lambda fleet: read(fleet).astype(np.int64)


def _constant(value: int) -> Callable[[GpuFleet], Values]:
    return lambda fleet: np.full(fleet.shape, value)


def _busy(fleet: GpuFleet) -> Values:
    return fleet.utilization / 100


FIELDS: tuple[Field, ...] = (
    Field(66, "DCGM_FI_DEV_PERSISTENCE_MODE", _whole(lambda f: f.persistence)),
    Field(84, "DCGM_FI_DEV_INFOROM_CONFIG_VALID", _constant(1)),
    Field(100, "DCGM_FI_DEV_SM_CLOCK", _whole(lambda f: f.sm_clock)),
    Field(101, "DCGM_FI_DEV_MEM_CLOCK", _constant(round(MEMORY_CLOCK_MHZ))),
    Field(112, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", lambda f: f.reasons),
    Field(140, "DCGM_FI_DEV_MEMORY_TEMP", _whole(lambda f: f.memory_temperature.round())),
    Field(150, "DCGM_FI_DEV_GPU_TEMP", _whole(lambda f: f.temperature.round())),
    Field(151, "DCGM_FI_DEV_MEM_MAX_OP_TEMP", None),
    Field(153, "DCGM_FI_DEV_GPU_TEMP_LIMIT", _whole(lambda f: (MAX_OPERATING_C - f.temperature).round())),
    Field(155, "DCGM_FI_DEV_POWER_USAGE", lambda f: f.power.round(3)),
    Field(156, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", _whole(lambda f: f.energy_mj)),
    Field(158, "DCGM_FI_DEV_SLOWDOWN_TEMP", _constant(round(HARDWARE_SLOWDOWN_C))),
    Field(160, "DCGM_FI_DEV_POWER_MGMT_LIMIT", lambda f: f.power_limit),
    Field(170, "DCGM_FI_DEV_FABRIC_MANAGER_STATUS", _constant(3)),
    Field(174, "DCGM_FI_DEV_FABRIC_HEALTH_MASK", _constant(426)),
    Field(202, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", lambda f: f.pcie_replays),
    Field(203, "DCGM_FI_DEV_GPU_UTIL", _whole(lambda f: f.utilization)),
    Field(204, "DCGM_FI_DEV_MEM_COPY_UTIL", _whole(lambda f: f.utilization * 0.62)),
    Field(206, "DCGM_FI_DEV_ENC_UTIL", _constant(0)),
    Field(207, "DCGM_FI_DEV_DEC_UTIL", _constant(0)),
    Field(XID_FIELD, "DCGM_FI_DEV_XID_ERRORS", lambda f: f.xid),
    Field(235, "DCGM_FI_DEV_PCIE_MAX_LINK_GEN", _constant(PCIE_GENERATION)),
    Field(236, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", _constant(PCIE_WIDTH)),
    Field(237, "DCGM_FI_DEV_PCIE_LINK_GEN", lambda f: f.pcie_generation),
    Field(238, "DCGM_FI_DEV_PCIE_LINK_WIDTH", lambda f: f.pcie_width),
    Field(240, "DCGM_FI_DEV_POWER_VIOLATION", _whole(lambda f: f.power_violation_ns)),
    Field(241, "DCGM_FI_DEV_THERMAL_VIOLATION", _whole(lambda f: f.thermal_violation_ns)),
    Field(251, "DCGM_FI_DEV_FB_FREE", lambda f: FB_TOTAL_MIB - FB_RESERVED_MIB - f.memory_used_mib),
    Field(252, "DCGM_FI_DEV_FB_USED", lambda f: f.memory_used_mib),
    Field(253, "DCGM_FI_DEV_FB_RESERVED", _constant(FB_RESERVED_MIB)),
    Field(300, "DCGM_FI_DEV_ECC_CURRENT", _whole(lambda f: f.ecc)),
    Field(310, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", lambda f: f.sbe_volatile),
    Field(311, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", lambda f: f.dbe_volatile),
    Field(312, "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", lambda f: f.sbe_aggregate),
    Field(313, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", lambda f: f.dbe_aggregate),
    Field(319, "DCGM_FI_DEV_ECC_DBE_VOL_DEV", lambda f: f.dbe_volatile),
    Field(346, "DCGM_FI_DEV_THRESHOLD_SRM", _constant(0)),
    Field(389, "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE", _constant(0)),
    # An H100 remaps rows and retires no pages.
    Field(390, "DCGM_FI_DEV_RETIRED_SBE", None),
    Field(391, "DCGM_FI_DEV_RETIRED_DBE", None),
    Field(392, "DCGM_FI_DEV_RETIRED_PENDING", None),
    Field(393, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", lambda f: f.remapped_uncorrectable),
    Field(394, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", lambda f: f.remapped_correctable),
    Field(395, "DCGM_FI_DEV_ROW_REMAP_FAILURE", _whole(lambda f: f.remap_failure)),
    Field(396, "DCGM_FI_DEV_ROW_REMAP_PENDING", _whole(lambda f: f.remap_pending)),
    Field(409, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", lambda f: f.nvlink_crc_flit),
    Field(419, "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", lambda f: f.nvlink_crc_data),
    Field(429, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", lambda f: f.nvlink_replay),
    Field(439, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", lambda f: f.nvlink_recovery),
    Field(449, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", _whole(lambda f: f.nvlink_bytes / 1024)),
    # The same errors as counted by the links; GPUs before Blackwell have these (MonitorNVLinkErrorFields).
    Field(497, "DCGM_FI_DEV_NVLINK_ERROR_DL_CRC", lambda f: f.nvlink_crc_flit + f.nvlink_crc_data),
    Field(498, "DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY", lambda f: f.nvlink_recovery),
    Field(499, "DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY", lambda f: f.nvlink_replay),
    Field(526, "DCGM_FI_DEV_VGPU_LICENSE_STATUS", _constant(0)),
    Field(1001, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", lambda f: _busy(f).round(6)),
    Field(1004, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", lambda f: (_busy(f) * 0.52).round(6)),
    Field(1005, "DCGM_FI_PROF_DRAM_ACTIVE", lambda f: (_busy(f) * 0.41).round(6)),
    Field(1009, "DCGM_FI_PROF_PCIE_TX_BYTES", _whole(lambda f: 4e5 + 2.1e9 * _busy(f))),
    Field(1010, "DCGM_FI_PROF_PCIE_RX_BYTES", _whole(lambda f: 3e5 + 3.4e9 * (f.power - IDLE_W).clip(0) / 610)),
    Field(1212, "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", None),  # from Blackwell on
    # Bit error rates, packed: a mantissa of 4 bits, and 8 bits of a negative power of ten.
    Field(1215, "DCGM_FI_DEV_NVLINK_COUNT_SYMBOL_BER", None),
    Field(1217, "DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER", None),
    Field(1507, "DCGM_FI_DEV_MEMORY_UNREPAIRABLE_FLAG", None),  # not looked at on an H100
    Field(1523, "DCGM_FI_DEV_GPU_RECOVERY_ACTION", _constant(0)),
)
BY_ID = {field.id: field for field in FIELDS}
BY_NAME = {field.name: field for field in FIELDS}


def is_blank(field: int, value: float) -> bool:
    """Return True if DCGM counts this value as none; clients skip it."""
    return value >= (_FP64_BLANK if field in DOUBLE_FIELDS else _INT64_BLANK)


@dataclass(frozen=True)
class Injected:
    value: float
    stamp: float  # the sample's own time, monotonic seconds


@dataclass(frozen=True)
class Frozen:
    """A node's samples of one field, from when its collection was paused."""

    values: Values
    shown: npt.NDArray[np.bool_]


class DcgmCache:
    """The host engines of all nodes. `running`, `exporting`, `collecting`, `blind` and `restarts` are per node.

    `exporting` says where an exporter would answer a scrape if its process has not ended with its host engine.
    """

    def __init__(
        self, fleet: GpuFleet, clock: Callable[[], float] = time.monotonic, watched: Iterable[int] | None = None
    ) -> None:
        """Prepare; `watched` has the ids of the fields that the exporter samples while it runs. None: all fields."""
        self.fleet = fleet
        self.clock = clock
        self._watched = frozenset(BY_ID if watched is None else watched)
        self._injected: dict[int, dict[Cell, Injected]] = {}
        self._frozen: dict[int, dict[int, Frozen]] = {}  # node -> field
        self._xids: dict[Cell, list[tuple[float, int]]] = {}  # when and which, oldest first
        self._health_xids: dict[int, set[Cell]] = {}
        self.restarts = np.zeros(fleet.shape[0], np.int64)
        self._started_at = np.full(fleet.shape[0], -np.inf)
        self._exporters = ExporterProcesses(fleet.shape[0])
        self.running = np.ones(fleet.shape[0], bool)
        self.exporting = np.ones(fleet.shape[0], bool)
        self.collecting = np.ones(fleet.shape[0], bool)
        self._blind_since = np.full(fleet.shape[0], np.inf)

    def inject(self, cell: Cell, field: int, value: float, offset_s: int = 1) -> None:
        """Inject a value. Its time stamp has whole seconds: the beginning of the running second plus `offset_s`."""
        self._put(cell, field, Injected(value, math.floor(self.clock()) + offset_s))
        if field == XID_FIELD and not is_blank(field, value):
            self._count_xid(cell, int(value))
            self._tell_health(cell, int(value))

    def _put(self, cell: Cell, field: int, injected: Injected) -> None:
        cells = self._injected.setdefault(field, {})
        if cell not in cells or cells[cell].stamp <= injected.stamp:
            cells[cell] = injected

    def injected(self, cell: Cell) -> dict[int, float]:
        """Return by field the GPU's injected values that no real sample has replaced yet.

        Left out is a blank Xid, which is how a GPU without one looks.
        """
        live = {field: self._live(field).get(cell) for field in list(self._injected)}
        found = {field: kept.value for field, kept in live.items() if kept}
        return {field: value for field, value in found.items() if field != XID_FIELD or not is_blank(field, value)}

    def nvml_xid(self, cell: Cell) -> None:
        """Replace an injected Xid by the GPU's last real one, as NVML's events report it; not of a GPU that is lost."""
        injected = self._injected.get(XID_FIELD, {})
        if self.blind[cell[0]] or self.fleet.lost[cell]:
            return
        if cell in injected and injected[cell].stamp <= self.clock():
            del injected[cell]
        if self.running[cell[0]]:
            self._count_xid(cell, int(self.fleet.xid[cell]))
            self._tell_health(cell, int(self.fleet.xid[cell]))

    def _count_xid(self, cell: Cell, code: int) -> None:
        self._xids.setdefault(cell, []).append((self.clock(), code))

    def _tell_health(self, cell: Cell, code: int) -> None:
        if self._has_exporter(cell[0]):  # nobody else watches health, and it knows nothing from before
            self._health_xids.setdefault(code, set()).add(cell)

    @property
    def health_xids(self) -> dict[int, set[Cell]]:
        """The GPUs that had an Xid since their host engine started and while health was watched, by code."""
        return self._health_xids

    @property
    def blind(self) -> npt.NDArray[np.bool_]:
        """The nodes where DCGM makes no more driver calls."""
        blind: npt.NDArray[np.bool_] = np.isfinite(self._blind_since)
        return blind

    def watches(self, node: int, field: int) -> bool:
        """Return True if somebody has this field of this node sampled; only the exporter ever does."""
        return field in self._watched and self._has_exporter(node)

    def _has_exporter(self, node: int) -> bool:
        return bool(self.exporting[node] and not self._exporters.dead[node])

    def start_exporter(self, node: int) -> None:
        """Start the node's exporter with the node or its unit."""
        self._exporters.start(node, int(self.restarts[node]))

    def scrape(self) -> npt.NDArray[np.bool_]:
        """Return the nodes that answer a scrape; it ends the exporters that are without their host engine."""
        self._exporters.scrape(self.restarts, self._started_at, self.running & self.fleet.powered, self.clock())
        answering: npt.NDArray[np.bool_] = self.exporting & ~self._exporters.dead
        return answering

    def xid_counts(self, cell: Cell) -> Counter[int]:
        """Return how often each code came to this GPU within the exporter's window; 0 counts if it was injected."""
        since = self.clock() - XID_WINDOW_S
        self._xids[cell] = [(at, code) for at, code in self._xids.get(cell, []) if at > since]
        return Counter(code for _, code in self._xids[cell])

    def xid_event(self, cell: Cell, code: int) -> None:
        """Take an Xid from the kernel log. A 119 ends DCGM's calls to the driver, for all GPUs of the node."""
        self._put(cell, XID_FIELD, Injected(code, self.clock()))
        self._count_xid(cell, code)
        if code == _BLINDING_XID and not self.blind[cell[0]]:
            self._blind_since[cell[0]] = self.clock()

    def restart(self, node: int) -> None:
        """Restart the host engine, which then knows nothing that was injected or paused."""
        self.running[node] = self.collecting[node] = True
        self._blind_since[node] = np.inf
        self._started_at[node] = self.clock()
        self._frozen.pop(node, None)
        self.restarts[node] += 1
        self._xids = {cell: kept for cell, kept in self._xids.items() if cell[0] != node}
        for told in self._health_xids.values():
            told.difference_update([cell for cell in told if cell[0] == node])
        for cells in self._injected.values():
            for cell in [cell for cell in cells if cell[0] == node]:
                del cells[cell]

    def pause(self, node: int) -> None:
        """Stop sampling this node: the cache keeps its values. Values that are injected meanwhile stay."""
        if not self.collecting[node]:
            return
        self.fleet.advance()
        self._frozen[node] = {
            field.id: Frozen(self.read(field)[node].copy(), self.shown(field)[node].copy())
            for field in FIELDS
            if field.id != XID_FIELD
        }
        self.collecting[node] = False

    def resume(self, node: int) -> None:
        self.collecting[node] = True
        self._frozen.pop(node, None)

    def sample(self, cell: Cell, field: int) -> None:
        """Sample now, like a new watcher. The sample is the latest, unless an injected one has a later stamp."""
        injected = self._injected.get(field, {}).get(cell)
        if field != XID_FIELD and injected and injected.stamp < self.clock():
            del self._injected[field][cell]

    def read(self, field: Field) -> Values:
        """Return the cache's values, (nodes, gpus), which count only where `shown` is true.

        The fleet must have been advanced.
        """
        sampled = field.read(self.fleet) if field.read else np.zeros(self.fleet.shape, np.int64)
        live = self._live(field.id)
        frozen = [(node, kept[field.id]) for node, kept in self._frozen.items() if field.id in kept]
        if not live and not frozen:
            return sampled
        values = sampled.copy()
        for node, kept in frozen:
            values[node] = kept.values
        for cell, injected in live.items():
            values[cell] = injected.value
        return values

    def latest(self, cell: Cell, field: int) -> float | None:
        """Return a cached value, or None if the field is blank (no such thing, a lost GPU, no Xid yet)."""
        if injected := self._live(field).get(cell):
            return injected.value
        if field not in BY_ID or not self.shown(BY_ID[field])[cell]:
            return None
        if field == XID_FIELD and not self.fleet.xid[cell]:
            return None
        self.fleet.advance()
        return float(self.read(BY_ID[field])[cell])

    def shown(self, field: Field) -> npt.NDArray[np.bool_]:
        """Return where there is a value: of a lost GPU only what was injected, until the next sample."""
        up = (self.fleet.powered & self.running)[:, None]
        there = np.broadcast_to(up, self.fleet.shape).copy()
        if field.read is None:
            there[:] = False
        else:
            there &= ~self.fleet.lost & ~self.fleet.removed
            there &= (self._blind_since + (SAMPLE_EVERY_S if field.id == XID_FIELD else 0) > self.clock())[:, None]
        for node, kept in self._frozen.items():
            if field.id in kept:
                there[node] = kept[field.id].shown & up[node]
        for cell, injected in self._live(field.id).items():
            there[cell] = up[cell[0], 0] and not is_blank(field.id, injected.value)
        return there

    def _live(self, field: int) -> dict[Cell, Injected]:
        cells = self._injected.get(field)
        if not cells:
            return {}
        now = self.clock()
        for cell in [cell for cell, injected in cells.items() if self._overwritten(cell, field, injected, now)]:
            del cells[cell]
        return cells

    def _overwritten(self, cell: Cell, field: int, injected: Injected, now: float) -> bool:
        """Return True if a real sample came since the injection; for a GPU that cannot be read a blank, also as Xid."""
        node, unreadable = cell[0], self.blind[cell[0]] or self.fleet.lost[cell] or self.fleet.removed[cell]
        if (field == XID_FIELD and not unreadable) or not (self.collecting[node] and self.watches(node, field)):
            return False
        return injected.stamp + SAMPLE_EVERY_S <= now
