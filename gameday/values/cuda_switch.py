"""The switch of a CUDA error: the value that a pod's interception library reads (deploy/cuda-error/cuda_error.c).

The pod's owners put the library in; a value in the pod's annotation switches it on. The kubelet writes the annotation
into a file of the pod, and the library answers in the pod's log.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Self

MAY_FAIL = ("gameday.dev/may-fail-cuda", "true")
"""The label by which a pod's owners consent."""
ANNOTATION = "gameday.dev/cuda-error"
"""The pod's annotation with the switch's value; without it no call fails."""
LIBRARY = "libgameday-cuda-error.so"
LONGEST = timedelta(hours=1)
"""The library accepts no value that ends later, so a forgotten one ends within the hour."""

_SAID = "gpu-gameday cuda: "
_READY, _NOT_READY = f"{_SAID}ready, ", f"{_SAID}not ready: "
_NOT_LOADED = re.compile(rf"ERROR: ld\.so: object '[^']*{re.escape(LIBRARY)}' from LD_PRELOAD cannot be preloaded")
"""The line of glibc's loader (elf/rtld.c), which then starts the program without the library."""
_VALUE = re.compile(
    r"v1 (?P<code>[1-9][0-9]{0,2}) (?P<until>[1-9][0-9]{0,10}) (?P<who>running|all) (?P<mark>[0-9a-f]{16})\n?",
    re.ASCII,
)


class CudaError(StrEnum):
    """An error that a broken GPU causes in its program, by its name in CUDA's driver API."""

    ILLEGAL_ADDRESS = "illegal-address"
    LAUNCH_FAILED = "launch-failed"
    ECC_UNCORRECTABLE = "ecc-uncorrectable"
    NVLINK_UNCORRECTABLE = "nvlink-uncorrectable"

    @property
    def code(self) -> int:
        """Number of the error, a CUresult of cuda.h."""
        return {
            CudaError.ILLEGAL_ADDRESS: 700,
            CudaError.LAUNCH_FAILED: 719,
            CudaError.ECC_UNCORRECTABLE: 214,
            CudaError.NVLINK_UNCORRECTABLE: 220,
        }[self]

    @property
    def xids(self) -> tuple[int, ...]:
        """The Xids that the driver writes to the kernel log when programs get this error."""
        return {
            CudaError.ILLEGAL_ADDRESS: (31,),
            CudaError.LAUNCH_FAILED: (13,),
            CudaError.ECC_UNCORRECTABLE: (48, 94, 95),
            CudaError.NVLINK_UNCORRECTABLE: (74,),
        }[self]


@dataclass(frozen=True)
class CudaSwitch:
    """A value of the switch: the error, its end, and the processes that it is for."""

    code: int
    """A CUresult, 1 to 999."""
    until: datetime
    """No process begins to fail after this moment, to the second."""
    for_new_processes: bool
    """If true, processes that start while the value is there fail, too; otherwise only those that ran before."""
    mark: str
    """16 hexadecimal digits that no other value has; the library prints them when it makes a process fail."""

    @classmethod
    def new(cls, error: CudaError, until: datetime, *, for_new_processes: bool) -> Self:
        """Return a value with a new mark."""
        return cls(error.code, until, for_new_processes, secrets.token_hex(8))

    def __str__(self) -> str:
        who = "all" if self.for_new_processes else "running"
        return f"v1 {self.code} {int(self.until.timestamp())} {who} {self.mark}"


def parse_switch(text: str, now: datetime) -> CudaSwitch | None:
    """Return the value in the switch's file; None if no process may fail because of it now."""
    found = _VALUE.fullmatch(text)
    if found is None:
        return None
    seconds, second = int(found["until"]), int(now.timestamp())
    if not second < seconds <= second + LONGEST.total_seconds():
        return None
    until = datetime.fromtimestamp(seconds, UTC)
    return CudaSwitch(int(found["code"]), until, found["who"] == "all", found["mark"])


def ready_line(switch_file: str, pid: int) -> str:
    """Return the library's line that it is loaded."""
    return f"{_READY}switch {switch_file}, pid {pid}"


def felt_line(switch: CudaSwitch, pid: int) -> str:
    """Return the library's line that a process fails from now on."""
    return f"{_SAID}error {switch.code} from now on, mark {switch.mark}, pid {pid}"


def why_not_loaded(log: Iterable[str]) -> str:
    """Return why a pod's library cannot make a process fail, by the lines of its log; empty if it can."""
    words = ""
    for line in log:
        if line.startswith(_READY):
            return ""
        if line.startswith(_NOT_READY):
            words = f"its library is loaded, and {line.removeprefix(_SAID)[:200]}"
        elif _NOT_LOADED.search(line):
            words = f"the loader could not load {LIBRARY}: {line.partition('ERROR: ')[2][:200]}"
    return words or (
        f"no process in it has said that {LIBRARY} is loaded, as each does with its first CUDA call; where its log was "
        "rotated since, start it again"
    )


def was_felt(log: Iterable[str], mark: str) -> bool:
    """Return True if a process said that it fails because of the value with this mark."""
    return any(line.startswith(f"{_SAID}error ") and f", mark {mark}, " in line for line in log)
