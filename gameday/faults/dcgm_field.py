"""A false value in DCGM's cache: the host engine shows its clients another value than the GPU's."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from gameday.documents.fields import conflict
from gameday.errors import HostError
from gameday.faults.base import BUS, HOST_ENGINE, Claim, Evidence, Fault, Layer, NodeNeeds
from gameday.faults.dcgm import BLANK, BLANK_DOUBLE, DECIMALS, SAMPLING, inject_value, read_value
from gameday.faults.dcgm_engines import look_at_engines, refuse_blind_readers
from gameday.faults.gpu import GpuParameters, target_gpu
from gameday.host.base import Host
from gameday.host.privileges import GPU_PROGRAMS, PodSecurity
from gameday.plan.fault import FaultParameters

_EVERY_S = 1.0
"""Time between two injections while the fault is held, as in the test of Azure's agent (docs/sources.md, DCGM
injection)."""
_OFFSET_S = 2
"""dcgmi counts in whole seconds, so its default of 1 may be no time at all; 2 outlasts the pause above."""
_UNDO_OFFSET_S = 3
"""Offset of the undo's timestamp: it is always newer than the last injection's, regardless of that one's second."""
_ATTEMPTS = 3
"""A slow node may need longer than the offset from injecting to reading back."""


@dataclass(frozen=True)
class Bounds:
    """A field of DCGM and the values that may be injected into it."""

    id: int
    """The field's number in dcgm_fields.h."""
    unit: str
    low: float
    high: float
    fault: float | None = None
    """The value that means a fault, if one is known."""
    acts: str = ""
    """The programs that act on it, and how (docs/sources.md, DCGM fields)."""
    whole: bool = True
    """The field holds whole numbers."""
    sampled: bool = True
    """DCGM samples the field, so a real value soon replaces an injected one."""


def _count(id: int, fault: float | None = None, acts: str = "") -> Bounds:
    """Return the bounds of a counter, below 11 digits: dmon cuts values that are wider than its column."""
    return Bounds(id, "count", 0, 1e9, fault, acts)


def _flag(id: int, fault: float, acts: str = "") -> Bounds:
    return Bounds(id, "0 or 1", 0, 1, fault, acts)


def _celsius(id: int, fault: float | None = None, acts: str = "") -> Bounds:
    return Bounds(id, "°C", -100, 200, fault, acts)


def _nanoseconds(id: int, fault: float | None = None, acts: str = "") -> Bounds:
    return Bounds(id, "ns", 0, 1e15, fault, acts)


def _mebibytes(id: int) -> Bounds:
    return Bounds(id, "MiB", 0, 1e9)


FIELDS: dict[str, Bounds] = {
    "DCGM_FI_DEV_INFOROM_CONFIG_VALID": _flag(84, 0, "NVSentinel asks for a component reset"),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": Bounds(112, "bit mask", 0, 1023, 232, "Azure's health agent reports an error"),
    "DCGM_FI_DEV_MEMORY_TEMP": _celsius(140, 95),
    "DCGM_FI_DEV_GPU_TEMP": _celsius(150, 95, "Azure's health agent warns; DCGM's thermal policy fires"),
    "DCGM_FI_DEV_GPU_TEMP_LIMIT": _celsius(153, -5),
    "DCGM_FI_DEV_POWER_USAGE": Bounds(155, "W", 0, 5000, None, "DCGM's power policy fires", whole=False),
    "DCGM_FI_DEV_SLOWDOWN_TEMP": _celsius(158),
    "DCGM_FI_DEV_SHUTDOWN_TEMP": _celsius(159),
    "DCGM_FI_DEV_FABRIC_MANAGER_STATUS": Bounds(170, "state", 0, 6, 4, "Azure's health agent reports an error"),
    "DCGM_FI_DEV_FABRIC_HEALTH_MASK": Bounds(
        174, "bit mask", 0, 65535, 410, "Azure's health agent reports an unhealthy route"
    ),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": _count(202, 10_000, "NVSentinel and EKS warn of the replay rate"),
    "DCGM_FI_DEV_XID_ERRORS": Bounds(
        230,
        "Xid",
        1,
        999,
        None,
        "DCGM fails its health check for eight codes until it restarts; NVSentinel cordons for 60, 64, 79 and 95",
        sampled=False,
    ),
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": Bounds(235, "generation", 1, 8),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": Bounds(236, "lanes", 1, 32),
    "DCGM_FI_DEV_PCIE_LINK_GEN": Bounds(237, "generation", 1, 8),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": Bounds(238, "lanes", 1, 32),
    "DCGM_FI_DEV_POWER_VIOLATION": _nanoseconds(240, 99_999, "NVSentinel records a non-fatal event"),
    "DCGM_FI_DEV_THERMAL_VIOLATION": _nanoseconds(
        241, 99_999, "NVSentinel cordons the node, with no remediation of its own"
    ),
    "DCGM_FI_DEV_SYNC_BOOST_VIOLATION": _nanoseconds(242),
    "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION": _nanoseconds(243),
    "DCGM_FI_DEV_LOW_UTIL_VIOLATION": _nanoseconds(244),
    "DCGM_FI_DEV_RELIABILITY_VIOLATION": _nanoseconds(245),
    "DCGM_FI_DEV_TOTAL_APP_CLOCKS_VIOLATION": _nanoseconds(246),
    "DCGM_FI_DEV_TOTAL_BASE_CLOCKS_VIOLATION": _nanoseconds(247),
    "DCGM_FI_DEV_FB_TOTAL": _mebibytes(250),
    "DCGM_FI_DEV_FB_FREE": _mebibytes(251),
    "DCGM_FI_DEV_FB_USED": _mebibytes(252),
    "DCGM_FI_DEV_FB_RESERVED": _mebibytes(253),
    "DCGM_FI_DEV_FB_USED_PERCENT": Bounds(254, "ratio", 0, 1, whole=False),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _count(310),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _count(311, 1, "DCGM fails the memory watch; NVSentinel asks for a reset"),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": _count(312),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": _count(313),
    "DCGM_FI_DEV_ECC_SBE_VOL_DEV": _count(318),
    "DCGM_FI_DEV_ECC_DBE_VOL_DEV": _count(
        319, 1, "DCGM's ECC policy fires; EKS takes the node out (NvidiaDoubleBitError)"
    ),
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX": _count(385),
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH": _count(386),
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL": _count(387),
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW": _count(388),
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE": _count(389),
    "DCGM_FI_DEV_RETIRED_SBE": _count(390),
    "DCGM_FI_DEV_RETIRED_DBE": _count(391),
    "DCGM_FI_DEV_RETIRED_PENDING": _count(392, 1, "Azure's health agent reports an error"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": _count(393, 512, "DCGM warns in the memory watch"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": _count(394),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": _flag(395, 1, "DCGM fails the memory watch; NVSentinel cordons the node"),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": _flag(396, 1, "NVSentinel asks for a component reset"),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": _count(409),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": _count(419),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": _count(429, 1, "DCGM fails the NVLink watch"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": _count(439, 1, "DCGM fails the NVLink watch"),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": _count(449),
    "DCGM_FI_DEV_NVLINK_ERROR_DL_CRC": _count(497),
    "DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY": _count(498),
    "DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY": _count(499),
    # dmon shows three decimals: the 1e-5 that other tools inject would read back as 0.
    "DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER_FLOAT": Bounds(
        1218, "bit errors per bit", 0.001, 1, 0.001, "Azure's health agent reports an error", whole=False
    ),
    "DCGM_FI_DEV_GPU_RECOVERY_ACTION": Bounds(1523, "action", 0, 7, 1, "DCGM's health check fails the GPU"),
}
"""The fields of docs/sources.md, DCGM fields, by the names of dcgm-exporter's metrics. DCGM 4.6 renamed many and
keeps these as aliases; the id is what counts."""

DcgmFieldName = StrEnum("DcgmFieldName", {name.removeprefix("DCGM_FI_DEV_"): name for name in FIELDS})  # type: ignore[misc]


class DcgmFieldParameters(GpuParameters):
    type: Literal["dcgm_field"] = "dcgm_field"
    field: DcgmFieldName
    """DCGM's name of the field, as in dcgm-exporter's metric."""
    value: float | None = Field(default=None, strict=True, allow_inf_nan=False)
    """The value to inject, in the field's unit; None: the value that means a fault, if one is known."""

    @property
    def bounds(self) -> Bounds:
        """The field's bounds."""
        return FIELDS[self.field]

    @property
    def injected(self) -> str:
        """The value in decimal, as dcgmi reads it and dmon prints it."""
        value = self.bounds.fault if self.value is None else self.value
        assert value is not None
        return f"{value:.0f}" if self.bounds.whole else f"{value:.{DECIMALS}f}"

    @field_validator("value", mode="before")
    @classmethod
    def _a_number(cls, value: object) -> object:
        if isinstance(value, (bool, str)):
            raise ValueError(f"{str(value)[:20]!r} is not a number: write it in decimal and without quotes, like 95")
        return value

    @model_validator(mode="after")
    def _within_bounds(self) -> DcgmFieldParameters:
        bounds, value = self.bounds, self.bounds.fault if self.value is None else self.value
        if value is None:
            raise conflict(("value",), f"{self.field} needs a value, as any may be its fault: {_range(bounds)}")
        if not bounds.low <= value <= bounds.high:
            raise conflict(("value",), f"{self.field} takes {_range(bounds)}, not {value:g}")
        if round(value, 0 if bounds.whole else DECIMALS) != value:
            what = "whole numbers" if bounds.whole else f"at most {DECIMALS} decimals, which is what dcgmi shows of it"
            raise conflict(("value",), f"{self.field} takes {what}, not {value:g}")
        return self


def _range(bounds: Bounds) -> str:
    return f"{bounds.low:g} to {bounds.high:g} ({bounds.unit})"


def _table() -> str:
    """Return the fields that somebody acts on as a Markdown table."""
    head = "| field | id | takes | its fault | who acts on it |\n|---|---|---|---|---|\n"
    known = {name: of for name, of in FIELDS.items() if of.acts or of.fault is not None}
    rows = (
        f"| `{name}` | {of.id} | {_range(of)} | {'' if of.fault is None else f'{of.fault:g}'} | {of.acts} |\n"
        for name, of in known.items()
    )
    others = "Nobody acts on the other fields, which [the schema](plan.schema.json) names; each needs a `value`."
    return f"{head}{''.join(rows)}\n{others}\n"


class DcgmFieldFault(Fault[DcgmFieldParameters]):
    """Puts a value into the host engine's cache with `dcgmi test --inject`, and keeps it the newest.

    The value is injected again each second, before a real sample replaces it, and read back with `dcgmi dmon`; an Xid
    is not sampled, and is injected once.

    The undo injects the value from before (no value, if that is not known), stamped three seconds ahead; then real
    samples follow. A real Xid that the driver reports within those seconds is older, and is not shown. To Prometheus a
    counter that comes back looks reset, so a rule on its increase may fire once more. A restart of the host engine
    clears everything that was injected.

    While collection is paused, as by `dcgmi diag`, DCGM knows no GPU: the fault is refused, and an undo tries again for
    half a minute, as if the engine stood still; then the reaper does. Of a lost GPU dcgmi reads nothing: the fault is
    perhaps still in until the node has restarted.

    Only the clients of the node's host engine see the value. The fault is refused if dcgm-exporter, NVSentinel's
    gpu-health-monitor, EKS' agent or Azure's agent has an engine of its own; the evidence names any other.

    The injector runs the host's dcgmi, or that of the host engine's pod. GPUs have NVML's numbers.
    """

    parameters: ClassVar[type[FaultParameters]] = DcgmFieldParameters
    layer: ClassVar[Layer] = Layer.DCGM_CACHE
    security: ClassVar[PodSecurity] = GPU_PROGRAMS
    summary: ClassVar[str] = "Puts a value for one GPU into DCGM's cache and keeps it there against real samples"
    does_not_reach: ClassVar[str] = (
        "NVML (nvidia-smi, the device plugin, gpud) and the kernel log: the GPU itself is well; a program with a "
        "DCGM host engine of its own"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "dcgm-exporter's metric of the field's name, if its counters file lists it",
        "DCGM health watches and policies",
        "NVSentinel's gpu-health-monitor",
        "EKS node monitoring agent",
        "Azure's cyclecloud-healthagent",
    )
    details: ClassVar[str] = _table()

    def claims(self, parameters: DcgmFieldParameters) -> tuple[Claim, ...]:
        of_gpu = (Claim(parameters.field, parameters.gpu), Claim(BUS, parameters.gpu, shared=True))
        return (*of_gpu, Claim(HOST_ENGINE, shared=True), Claim(SAMPLING, shared=True))

    def warnings(self, parameters: DcgmFieldParameters) -> tuple[str, ...]:
        return (f"{parameters.field}: {parameters.bounds.acts}",) if parameters.bounds.acts else ()

    def needs(self, parameters: DcgmFieldParameters) -> NodeNeeds:
        return NodeNeeds(dcgm=True)

    def prior_state(self, parameters: DcgmFieldParameters, gpu: int, host: Host) -> dict[str, str]:
        index = target_gpu(parameters, gpu, host).index
        refuse_blind_readers(host)
        before = read_value(host, index, parameters.bounds.id)
        if before == parameters.injected:
            raise HostError(f"{parameters.field} of GPU {index} is {before} already: nothing would change")
        return {"gpu": str(index)} | ({} if before is None else {"before": before})

    def inject(self, parameters: DcgmFieldParameters, gpu: int, host: Host) -> Evidence:
        state = self.prior_state(parameters, gpu, host)
        index, beside = int(state["gpu"]), look_at_engines(host).lines
        written_at = datetime.now(UTC)
        after = _put(host, index, parameters)
        lines = (
            f"before: {parameters.field} of GPU {index} is {state.get('before', 'N/A')}",
            f"dcgmi test --inject --gpuid {index} -f {parameters.bounds.id} -v {parameters.injected}",
            f"after: dcgmi dmon shows {after}",
            *beside,
        )
        return Evidence(lines=lines, written_at=written_at, undo_state=state)

    def hold(
        self, parameters: DcgmFieldParameters, gpu: int, host: Host, ended: threading.Event
    ) -> tuple[str, ...] | None:
        if not parameters.bounds.sampled:
            ended.wait()
            return None
        index, times = _index(parameters, gpu, {}), 0
        while not ended.wait(_EVERY_S):
            inject_value(host, index, parameters.bounds.id, parameters.injected, _OFFSET_S)
            times += 1
        return (f"injected {times} times more while held",)

    def undo(self, parameters: DcgmFieldParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        index, bounds = _index(parameters, gpu, undo_state), parameters.bounds
        found = read_value(host, index, bounds.id)
        if found != parameters.injected:
            return Evidence(lines=(f"{parameters.field} of GPU {index} is {found or 'N/A'}, not ours: left as it is",))
        before = undo_state.get("before")
        inject_value(host, index, bounds.id, before or (BLANK if bounds.whole else BLANK_DOUBLE), _UNDO_OFFSET_S)
        why = f"{before}, what it was" if before else "no value, because none is known from before"
        return Evidence(lines=(f"injected {why}; real samples follow if a program watches the field",))

    def verify_undone(self, parameters: DcgmFieldParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return read_value(host, _index(parameters, gpu, undo_state), parameters.bounds.id) != parameters.injected


def _index(parameters: DcgmFieldParameters, gpu: int, undo_state: dict[str, str]) -> int:
    """Return the index of the GPU that the fault was injected into."""
    chosen = gpu if parameters.gpu is None else parameters.gpu
    return int(undo_state.get("gpu", chosen))


def _put(host: Host, gpu: int, parameters: DcgmFieldParameters) -> str:
    """Inject until the value is read back, and return it. Raises HostError if it never is."""
    found: str | None = None
    for _ in range(_ATTEMPTS):
        inject_value(host, gpu, parameters.bounds.id, parameters.injected, _OFFSET_S)
        found = read_value(host, gpu, parameters.bounds.id)
        if found == parameters.injected:
            return found
    raise HostError(
        f"dcgmi says that it injected {parameters.injected} into {parameters.field} of GPU {gpu}, and {_ATTEMPTS} "
        f"times dmon shows {found or 'N/A'}: does another program inject there, or does dcgmi take longer than "
        f"{_OFFSET_S} s on this node?"
    )
