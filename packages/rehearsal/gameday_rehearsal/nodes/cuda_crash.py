"""A kernel that faults on the model: the lines that a real GPU wrote for the same fault, and NVML's event after them.

Recorded once, on an H200 (docs/sources.md, Real Xids); only process, address and GPU differ from crash to crash here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gameday.host.base import CrashKernel, CrashReport, XidEvent
from gameday_rehearsal.nodes.machine import Machine

COMMAND = "python3"
_ILLEGAL_ADDRESS = "cudaErrorIllegalAddress: an illegal memory access was encountered"


@dataclass(frozen=True)
class Recorded:
    """The driver's answer: Xids without a process first, then the one with it; the event comes only for that one."""

    error: str
    code: int
    text: str
    nvml_ms: float
    """Median of ten plays, from the kernel's stamp to the event."""
    before: tuple[str, ...] = ()
    """Texts of the Xids 13 before it."""


_WARP = "Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0)"
_ESR = "Graphics Exception: ESR 0x519730={} 0x519734={} 0x519728=0x1f81fb60 0x51972c=0x1174"
_CHANNEL = "channel 0x0000000a"
_CLASS = f"Graphics Exception: {_CHANNEL}, Class 0000cbc0, Offset 00000510, Data 0017e2ac"
RECORDED: Mapping[CrashKernel, Recorded] = {
    "illegal_address": Recorded(
        _ILLEGAL_ADDRESS,
        31,
        f"{_CHANNEL}, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x8376_e5e00000. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
        20.9,
    ),
    "misaligned_address": Recorded(
        "cudaErrorMisalignedAddress: misaligned address",
        13,
        _CLASS,
        69.6,
        (f"{_WARP}: Misaligned Address", _ESR.format("0x500000f", "0x0")),
    ),
    "shared_out_of_range": Recorded(
        "cudaErrorIllegalInstruction: an illegal instruction was encountered",
        13,
        _CLASS,
        69.6,
        (f"{_WARP}: Illegal Instruction Parameter", _ESR.format("0xb", "0x0")),
    ),
    "stack_overflow": Recorded(
        _ILLEGAL_ADDRESS,
        43,
        _CHANNEL,
        2.3,
        (
            f"{_WARP}: Out Of Range Address",
            f"{_WARP.replace('Warp', 'Global')}: Multiple Warp Errors",
            _ESR.format("0x300000e", "0x24"),
        ),
    ),
    "trap": Recorded("cudaErrorLaunchFailure: unspecified launch failure", 43, _CHANNEL, 2.3),
}


def crash(machine: Machine, gpu: int, kernel: CrashKernel, pid: int) -> CrashReport:
    """Let the driver write what it writes about such a crash, and return what the process sees of it."""
    recorded, launched_at = RECORDED[kernel], datetime.now(UTC)
    for text in recorded.before:
        machine.log_xid(gpu, 13, text)
    machine.record_xid(gpu, recorded.code, f"pid={pid}, name={COMMAND}, {recorded.text}")
    event_at = datetime.now(UTC) + timedelta(milliseconds=recorded.nvml_ms)
    return CrashReport(
        pid=pid,
        command=COMMAND,
        launched_at=launched_at,
        error=recorded.error,
        nvml=XidEvent(code=recorded.code, at=event_at),
    )
