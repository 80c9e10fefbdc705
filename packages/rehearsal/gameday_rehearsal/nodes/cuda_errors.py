"""A stand-in for the interception library in simulated containers, which make no CUDA calls: it reads the same value.

The library itself is deploy/cuda-error/cuda_error.c; a test holds both to one table of values.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from gameday.values.cuda_switch import LIBRARY, CudaError, CudaSwitch, felt_line, parse_switch, ready_line
from gameday_rehearsal.nodes.sandbox import Sandbox
from kubesim.client import Object

_WORDS = {
    CudaError.ILLEGAL_ADDRESS.code: "an illegal memory access was encountered",
    CudaError.LAUNCH_FAILED.code: "unspecified launch failure",
    CudaError.ECC_UNCORRECTABLE.code: "uncorrectable ECC error encountered",
    CudaError.NVLINK_UNCORRECTABLE.code: "uncorrectable NVLink error detected during the execution",
}
"""The texts of cudaGetErrorString, with which PyTorch ends a process (docs/sources.md, CUDA errors)."""


class CudaLibrary:
    """The library in one simulated process; inactive if its container does not preload it or lacks the file."""

    def __init__(self, container: Object, sandbox: Sandbox, pid: int) -> None:
        variables = {one["name"]: str(one.get("value") or "") for one in container.get("env") or ()}
        self.pid = pid
        self._file: Path | None = None
        self.first_words = self._load(container, variables.get("LD_PRELOAD", ""))
        if self.first_words == () and LIBRARY in variables.get("LD_PRELOAD", ""):
            switch_file = variables.get("GAMEDAY_CUDA_SWITCH", "")
            self._file = Path(sandbox.rewritten(container, switch_file))
            self.first_words = (ready_line(switch_file, pid),)
        there = self._value()
        self._mark_at_start = there.mark if there else ""

    def _load(self, container: Object, preload: str) -> tuple[str, ...]:
        """Return the loader's message; a library that no volume brings does not exist (glibc, elf/rtld.c)."""
        mounts = [str(one["mountPath"]).rstrip("/") for one in container.get("volumeMounts") or ()]
        if not preload or any(preload.startswith(f"{mount}/") for mount in mounts):
            return ()
        why = "cannot open shared object file"
        return (f"ERROR: ld.so: object '{preload}' from LD_PRELOAD cannot be preloaded ({why}): ignored.",)

    def felt(self) -> CudaSwitch | None:
        """Return the value that makes the process's next CUDA call fail, or None if it succeeds."""
        value = self._value()
        return value if value and (value.for_new_processes or value.mark != self._mark_at_start) else None

    def last_words(self, value: CudaSwitch) -> tuple[str, ...]:
        """Return the last lines of a training that ends by a failed call."""
        return (felt_line(value, self.pid), f"RuntimeError: CUDA error: {_WORDS.get(value.code, 'unknown error')}")

    def _value(self) -> CudaSwitch | None:
        try:
            return parse_switch(self._file.read_text(encoding="utf-8"), datetime.now(UTC)) if self._file else None
        except (OSError, UnicodeDecodeError):
            return None
