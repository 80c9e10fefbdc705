"""Read every GPU by NVML, field by field, so that one unreadable field or GPU does not cost the others.

The agent opens and closes NVML for each reading: an open NVML client counts as a user of the GPU, and would make
`nvidia-smi --gpu-reset` refuse.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import CDLL, RTLD_GLOBAL
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from gameday.errors import HostError
from gameday.host.base import GpuSample
from gameday.host.cpus import format_cpus
from gameday.host.nvml_missing import NO_LIBRARY_HINT

FieldReader = Callable[[ModuleType, Any], dict[str, Any]]
"""A function from pynvml and a device handle to fields of GpuSample, in its units."""

_AFFINITY_WORDS = 64
"""Words of 64 CPUs each: 4096 CPUs. Kernels can be built for 8192 (NR_CPUS), but no such machine exists."""
_LIBRARY = "libnvidia-ml.so.1"
"""The name under which pynvml loads the driver's library on Linux."""
_HINTS = {
    "NVMLError_LibraryNotFound": NO_LIBRARY_HINT,
    "NVMLError_DriverNotLoaded": "the nvidia kernel module is not loaded; see `dmesg` and `lsmod` on the host",
    "NVMLError_LibRmVersionMismatch": "driver and user-space library differ; reboot or reload the driver",
    "NVMLError_NoPermission": "run the agent privileged",
    "NVMLError_FunctionNotFound": f"{_LIBRARY} lacks what every reading needs; it is too old, or not NVIDIA's",
}


_LIBRARY = "libnvidia-ml.so.1"
_LIBRARY_FOLDERS = tuple(
    f"{root}usr/{folder}"
    for root in ("", "run/nvidia/driver/")
    for folder in (f"lib/{platform.machine()}-linux-gnu", "lib64", "lib")
)
"""Folders of the driver's libraries in all distributions, on a host and in the GPU operator's driver container."""


def read_gpus(nvml: ModuleType | None = None, *, host_root: Path = Path("/")) -> list[GpuSample]:
    """Return every GPU that the driver counts, even lost ones, by index.

    Args:
        nvml: The pynvml module; None imports it. Tests pass another one.
        host_root: The host's root as this container sees it. Its NVML is used if no runtime has put one into the
            container.

    Raises:
        HostError: NVML cannot be opened, or does not count the GPUs.
    """
    with open_nvml(nvml, host_root=host_root) as opened:
        return [_sample(opened, index) for index in range(opened.nvmlDeviceGetCount())]


@contextmanager
def open_nvml(nvml: ModuleType | None = None, *, host_root: Path = Path("/")) -> Iterator[Any]:
    """Hold NVML open for the block, and yield pynvml. The arguments are those of `read_gpus`.

    Raises:
        HostError: NVML cannot be opened, or the block raised an NVMLError.
    """
    nvml = nvml or import_module("pynvml")  # 8,000 lines that only the real host needs
    try:
        _init(nvml, host_root)
    except nvml.NVMLError as error:
        raise _host_error(error) from None
    try:
        yield nvml
    except nvml.NVMLError as error:
        raise _host_error(error) from None
    finally:
        nvml.nvmlShutdown()


def _init(nvml: ModuleType, host_root: Path) -> None:
    """Open NVML, from the host's library if the container has none. Raises an NVMLError."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError_LibraryNotFound:
        if not any(_loaded(host_root / folder / _LIBRARY) for folder in _LIBRARY_FOLDERS):
            raise
        nvml.nvmlInit()


def _loaded(library: Path) -> bool:
    """Load a library, so that later loads find it by its name; return False if that fails."""
    with suppress(OSError):
        CDLL(str(library), mode=RTLD_GLOBAL)
        return True
    return False


def _host_error(error: Exception) -> HostError:
    name = type(error).__name__
    what = f"NVML not found ({_loader_error()})" if name == "NVMLError_LibraryNotFound" else f"NVML: {error}"
    hint = _HINTS.get(name)
    return HostError(f"{what}: {hint}" if hint else what)


def _loader_error() -> str:
    """Return why the loader refuses the library (absent, torn, of another machine), which pynvml does not tell.

    It is loaded once more for that; if it loads now, somebody has just put it there.
    """
    try:
        CDLL(_LIBRARY)
    except OSError as error:
        return str(error)[:200]
    return "it is there now"


def _sample(nvml: ModuleType, index: int) -> GpuSample:
    fields: dict[str, Any] = {"uuid": "", "name": "", "pci_bus_id": ""}
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError_NoPermission:
        raise
    except nvml.NVMLError:
        # For every other reason, too, a GPU without a handle cannot be used.
        return GpuSample(index=index, lost=True, **fields)
    lost = False
    for read in _FIELD_READERS:
        try:
            fields.update(read(nvml, handle))
        except nvml.NVMLError_GpuIsLost:
            lost = True
        except (nvml.NVMLError, UnicodeDecodeError):  # pynvml decodes a name that is not text
            continue
    if lost:
        fields = {key: fields[key] for key in ("uuid", "name", "pci_bus_id")}
    return GpuSample(index=index, lost=lost, **fields)


def _pci(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    info = nvml.nvmlDeviceGetPciInfo(handle)
    return {"pci_bus_id": f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}"}


def _power(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    return {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000}


def _power_limit(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    return {"power_limit_w": nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000}


def _power_limit_default(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    return {"power_limit_default_w": nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000}


def _ecc_mode(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    current, pending = nvml.nvmlDeviceGetEccMode(handle)
    return {"ecc_mode": bool(current), "ecc_mode_pending": bool(pending)}


def _cpu_affinity(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    words = nvml.nvmlDeviceGetCpuAffinity(handle, _AFFINITY_WORDS)
    cpus = [64 * index + bit for index, word in enumerate(words) for bit in range(64) if word >> bit & 1]
    return {"cpu_affinity": format_cpus(cpus)} if cpus else {}


def _compute_pids(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    return {"compute_pids": tuple(one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle))}


def _memory(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"memory_used_bytes": info.used, "memory_total_bytes": info.total}


def _memory_temperature(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    (field,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_MEMORY_TEMP])
    return {"memory_temperature_c": field.value.uiVal} if field.nvmlReturn == nvml.NVML_SUCCESS else {}


def _t_limits(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    """Read the temperatures at which the GPU slows itself down, as NVML gives them from Ada on.

    They are distances from the T.Limit, which lies above the current temperature by the margin. While the temperature
    changes, the sum may be a degree off.
    """
    fields = {
        "max_operating_c": nvml.NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT,
        "slowdown_c": nvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT,
    }
    margin = nvml.nvmlDeviceGetMarginTemperature(handle)
    limit = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU) + margin
    distances = nvml.nvmlDeviceGetFieldValues(handle, list(fields.values()))
    return {
        field: limit - distance.value.siVal
        for field, distance in zip(fields, distances, strict=True)
        if distance.nvmlReturn == nvml.NVML_SUCCESS
    }


def _clocks_event_reasons(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    try:
        mask = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except nvml.NVMLError_FunctionNotFound:  # the function's name in drivers before 535
        mask = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return {"clocks_event_reasons": mask}


def _ecc(kind: str, field: str) -> FieldReader:
    def read(nvml: ModuleType, handle: Any) -> dict[str, Any]:
        error_type = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}")
        return {field: nvml.nvmlDeviceGetTotalEccErrors(handle, error_type, nvml.NVML_VOLATILE_ECC)}

    return read


def _remapped_rows(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    correctable, uncorrectable, pending, failure = nvml.nvmlDeviceGetRemappedRows(handle)
    return {
        "remapped_rows_correctable": correctable,
        "remapped_rows_uncorrectable": uncorrectable,
        "row_remap_pending": bool(pending),
        "row_remap_failure": bool(failure),
    }


def _nvlinks(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    states: list[int] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states.append(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except nvml.NVMLError_InvalidArgument:  # past the last link of this GPU
            break
        except nvml.NVMLError_NotSupported:
            continue
    return {"nvlinks_active": sum(map(bool, states)) if states else None, "nvlinks_supported": len(states)}


def _nvlink_speed(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    (field,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON])
    return {"nvlink_mbps": field.value.uiVal or None} if field.nvmlReturn == nvml.NVML_SUCCESS else {}


def _plain(field: str, getter: str, *constants: str) -> FieldReader:
    """Return a reader for a field that NVML's getter returns in the sample's unit.

    Args:
        field: Name of the GpuSample's field.
        getter: Name of pynvml's function.
        constants: Names of the pynvml constants that the function takes after the handle.
    """

    def read(nvml: ModuleType, handle: Any) -> dict[str, Any]:
        return {field: getattr(nvml, getter)(handle, *(getattr(nvml, name) for name in constants))}

    return read


_FIELD_READERS: tuple[FieldReader, ...] = (
    _plain("uuid", "nvmlDeviceGetUUID"),
    _plain("name", "nvmlDeviceGetName"),
    _pci,
    _plain("temperature_c", "nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
    _memory_temperature,
    _plain("max_operating_c", "nvmlDeviceGetTemperatureThreshold", "NVML_TEMPERATURE_THRESHOLD_GPU_MAX"),
    _plain("slowdown_c", "nvmlDeviceGetTemperatureThreshold", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
    _t_limits,  # after those, and instead of them if there are both (docs/sources.md, GPU temperatures)
    _power,
    _power_limit,
    _power_limit_default,
    _plain("sm_clock_mhz", "nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
    _plain("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM"),
    _plain("memory_clock_mhz", "nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
    lambda nvml, handle: {"utilization_pct": nvml.nvmlDeviceGetUtilizationRates(handle).gpu},
    _memory,
    _clocks_event_reasons,
    _ecc_mode,
    _ecc("UNCORRECTED", "ecc_dbe_volatile"),
    _ecc("CORRECTED", "ecc_sbe_volatile"),
    _remapped_rows,
    _nvlinks,
    _nvlink_speed,
    _plain("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    _plain("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    _plain("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    _plain("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    _plain("pcie_replay_counter", "nvmlDeviceGetPcieReplayCounter"),
    lambda nvml, handle: {"persistence_mode": bool(nvml.nvmlDeviceGetPersistenceMode(handle))},
    _cpu_affinity,
    _compute_pids,
)
