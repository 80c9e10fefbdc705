"""The GPUs of this machine, read about once a second by one thread that holds NVML open.

An NVML that hangs with its GPU hangs only that thread: the figures grow old, and old ones are not shown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gameday.errors import HostError
from gameday.host.nvml import open_nvml
from gameday_rehearsal.nodes.identity import GpuIdentity
from gameday_rehearsal.this_machine.figures import read_figures

READ_EVERY_S = 1.0
"""Interval of the readings: DCGM's shortest default."""
SHOWN_FOR_S = 5.0
"""Age of the oldest figures that are shown; our own choice, longer than a slow reading and shorter than a hang."""
_EVENTS_AT_ONCE = 100
"""Events that are taken in one reading; the others wait for the next."""
_FAMILIES = {7: "turing", 8: "ampere", 9: "hopper"}
"""nvidia.com/gpu.family by the compute capability's first number, apart from Volta and Ada (getArchFamily in GPU
feature discovery's internal/lm/resource.go)."""


@dataclass(frozen=True)
class Gpus:
    """The GPUs as NVML named them at the start."""

    identities: tuple[GpuIdentity, ...]
    model: str
    """The name of the first; a node has one model."""
    driver: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of GPU feature discovery that NVML can tell."""


@dataclass(frozen=True)
class Reading:
    """The figures of all GPUs at one moment, by index; empty for a GPU that does not answer."""

    at: float
    figures: Mapping[int, Mapping[str, float]]
    xids: Mapping[int, int] | None
    """The last Xid of each GPU that had one, by NVML's events; None if NVML sends none."""


def find_gpus() -> Gpus:
    """Return the GPUs that NVML counts. Raises HostError if there is no NVML, or no GPU answers."""
    with open_nvml() as nvml:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        if not handles:
            raise HostError("NVML counts no GPU")
        identities = tuple(_identity(nvml, index, handle) for index, handle in enumerate(handles))
        model = nvml.nvmlDeviceGetName(handles[0])
        driver = str(_or_none(nvml, nvml.nvmlSystemGetDriverVersion) or "")
        return Gpus(identities, model, driver, _labels(nvml, handles[0], model, driver))


def _identity(nvml: Any, index: int, handle: Any) -> GpuIdentity:
    pci = nvml.nvmlDeviceGetPciInfo(handle)
    name = f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}"
    return GpuIdentity(index=index, uuid=nvml.nvmlDeviceGetUUID(handle), pci=name, serial="")


def _labels(nvml: Any, handle: Any, model: str, driver: str) -> dict[str, str]:
    memory = _or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    capability = _or_none(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    cuda = _or_none(nvml, nvml.nvmlSystemGetCudaDriverVersion)
    labels = {
        "nvidia.com/gpu.product": "-".join(model.split()),
        "nvidia.com/gpu.memory": str(memory.total >> 20) if memory else "",
        "nvidia.com/gpu.family": _family(*capability) if capability else "",
        "nvidia.com/cuda.driver-version.full": driver,
        "nvidia.com/cuda.runtime-version.full": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
    }
    return {key: value for key, value in labels.items() if value}


def _family(major: int, minor: int) -> str:
    if (major, minor) == (8, 9):
        return "ada-lovelace"
    return "volta" if major == 7 and minor < 5 else _FAMILIES.get(major, "")


def _or_none(nvml: Any, read: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except nvml.NVMLError:
        return None


class GpuReader:
    """Reads all GPUs once a second in a thread of its own, from `start` until `stop` or the end of the process.

    With `lets_go` it holds NVML open only while it reads, and not at all while `pauses` says so: an open NVML client
    makes a reset refuse.
    """

    def __init__(self, *, lets_go: bool, pauses: Callable[[], bool], changed: Callable[[], None]) -> None:
        self._lets_go = lets_go
        self._pauses = pauses
        self._changed = changed
        self._last: Reading | None = None
        self._answering: frozenset[int] | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name="nvml", daemon=True).start()

    def stop(self) -> None:
        """End with the present reading, which is not awaited: it may hang."""
        self._stopped.set()

    def reading(self) -> Reading | None:
        """Return the newest reading; None if there is none, or only an old one."""
        last = self._last
        return last if last and time.monotonic() - last.at <= SHOWN_FOR_S else None

    def answers(self, gpu: int) -> bool:
        """Return True if the GPU answered when it was last asked; before that, too."""
        return self._answering is None or gpu in self._answering

    def _read(self) -> None:
        while not self._stopped.is_set():
            try:
                if not (self._lets_go and self._pauses()):
                    self._read_opened()
            except HostError:  # the driver is away, as during a restart of it: nothing answers
                self._answer(frozenset())
            self._stopped.wait(READ_EVERY_S)

    def _read_opened(self) -> None:
        """Read with an open NVML, once or until the stop. Raises HostError."""
        with open_nvml() as nvml:
            xids = None if self._lets_go else XidEvents(nvml)
            self._note(nvml, xids)
            while not (self._lets_go or self._stopped.wait(READ_EVERY_S)):
                self._note(nvml, xids)

    def _note(self, nvml: Any, events: XidEvents | None) -> None:
        at, figures = time.monotonic(), {}
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = _or_none(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
            figures[index] = read_figures(nvml, handle) if handle else {}
        self._last = Reading(at, figures, events.last() if events else None)
        self._answer(frozenset(index for index, found in figures.items() if found))

    def _answer(self, answering: frozenset[int]) -> None:
        before, self._answering = self._answering, answering
        if before is not None and before != answering:
            self._changed()


class XidEvents:
    """The Xids of which NVML sends events, from the time on at which this is made."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._by_pci: dict[str, int] = {}
        self._last: dict[int, int] | None = {}
        try:
            self._set = nvml.nvmlEventSetCreate()
            for index in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._set)
                self._by_pci[nvml.nvmlDeviceGetPciInfo(handle).busId] = index
        except nvml.NVMLError:
            self._last = None

    def last(self) -> dict[int, int] | None:
        """Return the last Xid of each GPU that had one; None if NVML sends no events."""
        nvml = self._nvml
        for _ in range(_EVENTS_AT_ONCE):
            if self._last is None:
                return None
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, 0)
                self._last[self._by_pci[nvml.nvmlDeviceGetPciInfo(event.device).busId]] = int(event.eventData)
            except nvml.NVMLError_Timeout:
                break
            except nvml.NVMLError:
                self._last = None
        return None if self._last is None else dict(self._last)
