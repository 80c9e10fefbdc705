"""Kernels that fault, and one of them run: the driver itself then ends this process's work and writes an Xid.

The kernels are compiled by NVRTC, which CuPy brings: no compiler is needed on the node. CUDA gives a process that has
crashed its GPU the same error for every later call, so each crash needs a process of its own, which then ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from gameday.errors import HostError
from gameday.host.base import CrashKernel, CrashReport, XidEvent
from gameday.host.nvml_events import EVENT_WITHIN_S

NAME = "crash"
"""The kernels' name; each takes the address of some bytes of its own."""
_HEAD = f'extern "C" __global__ void {NAME}(char *own)'
SOURCES: Mapping[CrashKernel, str] = {
    # In no process's memory: above the 47 bits of user space. The recorded GPU named this address.
    "illegal_address": f"{_HEAD} {{ *(volatile int *)0x8376e5e00000ull = 1; }}",
    "misaligned_address": f"{_HEAD} {{ *(volatile int *)(own + 1) = 1; }}",
    # The last words of the 16 MiB window onto shared memory, of which the block has none.
    "shared_out_of_range": f'{_HEAD} {{ asm volatile("st.shared.u32 [%0], %1;" :: "r"(0xfffff0), "r"(1)); }}',
    # The sum after the call keeps the compiler from making a loop of it.
    "stack_overflow": (
        "__device__ __noinline__ int deeper(volatile int *above) {"
        " volatile int here[256]; here[above[0] & 255] = above[1]; return deeper(here) + here[3]; }"
        f"{_HEAD} {{ volatile int first[256]; first[0] = 1; *(int *)own = deeper(first); }}"
    ),
    "trap": f'{_HEAD} {{ asm volatile("trap;"); }}',
}
_OWN_BYTES = 4096

Events = Callable[[], AbstractContextManager[Callable[[], XidEvent | None]]]
"""Opens NVML's events: gives a function that waits for the next critical Xid. Raises HostError."""


def crash(cupy: ModuleType, kernel: CrashKernel, events: Events) -> CrashReport:
    """Run a kernel that faults on the current GPU, and return what this process saw of it.

    Args:
        cupy: The CuPy module.
        kernel: The kernel's name.
        events: NVML's events of the GPU; they are opened before the kernel starts.

    Raises:
        RuntimeError: The kernel ended without an error.
    """
    try:
        with events() as next_xid:
            return _crash(cupy, kernel, next_xid)
    except HostError as error:
        return _crash(cupy, kernel, lambda: None).model_copy(update={"nvml_unseen": str(error)[:500]})


def _crash(cupy: ModuleType, kernel: CrashKernel, next_xid: Callable[[], XidEvent | None]) -> CrashReport:
    function = cupy.RawModule(code=SOURCES[kernel]).get_function(NAME)
    own = cupy.zeros(_OWN_BYTES, dtype=cupy.uint8)
    cupy.cuda.Stream.null.synchronize()  # compiled, loaded and at rest: what follows is the fault alone
    with ThreadPoolExecutor(1) as pool:
        event = pool.submit(next_xid)
        launched_at = datetime.now(UTC)
        try:
            function((1,), (1,), (own,))
            cupy.cuda.Stream.null.synchronize()
        except Exception as error:  # CuPy has its own error types, of the driver and of the runtime
            said = f"{error}"[:500]
        else:
            raise RuntimeError(f"the kernel {kernel} ended without an error: this GPU does not fault by it")
        seen = event.result()
    return CrashReport(
        pid=os.getpid(),
        command=Path("/proc/self/comm").read_text(encoding="utf-8", errors="replace").strip(),
        launched_at=launched_at,
        error=said,
        nvml=seen,
        nvml_unseen="" if seen else f"NVML gave no event of an Xid within {EVENT_WITHIN_S:g} s",
    )
