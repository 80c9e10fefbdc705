"""NVML's events of critical Xids, by which DCGM and the device plugin hear of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from gameday.host.base import XidEvent
from gameday.host.nvml import open_nvml

EVENT_WITHIN_S = 3.0
"""Longest wait for an event: the slowest recorded one came 0.12 s after the kernel's line (docs/sources.md, Real
Xids)."""


@contextmanager
def xid_events(gpu: int, host_root: Path = Path("/proc/1/root")) -> Iterator[Callable[[], XidEvent | None]]:
    """Follow the critical Xids of a GPU; yield a function that waits for the next one, and returns None if none comes.

    Args:
        gpu: NVML index.
        host_root: The host's root as this container sees it, for its NVML.

    Raises:
        HostError: NVML cannot be opened, or has no such events of this GPU.
    """
    with open_nvml(host_root=host_root) as nvml:
        events = nvml.nvmlEventSetCreate()
        device = nvml.nvmlDeviceGetHandleByIndex(gpu)
        nvml.nvmlDeviceRegisterEvents(device, nvml.nvmlEventTypeXidCriticalError, events)

        def next_xid() -> XidEvent | None:
            try:
                event = nvml.nvmlEventSetWait_v2(events, round(EVENT_WITHIN_S * 1000))
            except nvml.NVMLError:  # its time is up, or the GPU is lost
                return None
            return XidEvent(code=event.eventData, at=datetime.now(UTC))

        yield next_xid
        nvml.nvmlEventSetFree(events)
