"""The figures that NVML has under the names and in the units of dcgm-exporter. A figure that cannot be read is absent.

NVML has no profiling figures (DCGM_FI_PROF_*), no health checks and no sums over NVLinks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_MIB = 1 << 20
Reader = Callable[[Any, Any], float]
"""A function from pynvml and a device handle to a figure. It may raise an NVMLError."""


def _plain(getter: str, *constants: str, divided_by: int = 1) -> Reader:
    """Return a reader for what this function of pynvml returns, with these constants of pynvml after the handle."""

    def read(nvml: Any, handle: Any) -> float:
        value: int = getattr(nvml, getter)(handle, *(getattr(nvml, name) for name in constants))
        return value if divided_by == 1 else value / divided_by

    return read


def _ecc(error: str, counter: str) -> Reader:
    return _plain("nvmlDeviceGetTotalEccErrors", f"NVML_MEMORY_ERROR_TYPE_{error}", f"NVML_{counter}_ECC")


def _memory(part: str) -> Reader:
    """Return a reader for a part of the memory, MiB; only the second form of NVML's answer tells what is reserved."""

    def read(nvml: Any, handle: Any) -> float:
        return float(getattr(nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2), part) // _MIB)

    return read


def _memory_temperature(nvml: Any, handle: Any) -> float:
    (field,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_MEMORY_TEMP])
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(field.nvmlReturn)
    return float(field.value.uiVal)


def _remapped(part: int) -> Reader:
    return lambda nvml, handle: int(nvml.nvmlDeviceGetRemappedRows(handle)[part])


def _violation(policy: str) -> Reader:
    return lambda nvml, handle: nvml.nvmlDeviceGetViolationStatus(handle, getattr(nvml, policy)).violationTime


FIGURES: Mapping[str, Reader] = {
    "DCGM_FI_DEV_SM_CLOCK": _plain("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
    "DCGM_FI_DEV_MEM_CLOCK": _plain("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
    "DCGM_FI_DEV_MEMORY_TEMP": _memory_temperature,
    "DCGM_FI_DEV_GPU_TEMP": _plain("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
    "DCGM_FI_DEV_POWER_USAGE": _plain("nvmlDeviceGetPowerUsage", divided_by=1000),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _plain("nvmlDeviceGetTotalEnergyConsumption"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": _plain("nvmlDeviceGetPcieReplayCounter"),
    "DCGM_FI_DEV_GPU_UTIL": lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
    "DCGM_FI_DEV_MEM_COPY_UTIL": lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).memory,
    "DCGM_FI_DEV_ENC_UTIL": lambda nvml, handle: nvml.nvmlDeviceGetEncoderUtilization(handle)[0],
    "DCGM_FI_DEV_DEC_UTIL": lambda nvml, handle: nvml.nvmlDeviceGetDecoderUtilization(handle)[0],
    "DCGM_FI_DEV_FB_FREE": _memory("free"),
    "DCGM_FI_DEV_FB_USED": _memory("used"),
    "DCGM_FI_DEV_FB_RESERVED": _memory("reserved"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": _remapped(0),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": _remapped(1),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": _remapped(2),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": _remapped(3),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": _plain("nvmlDeviceGetCurrentClocksEventReasons"),
    "DCGM_FI_DEV_THERMAL_VIOLATION": _violation("NVML_PERF_POLICY_THERMAL"),
    "DCGM_FI_DEV_POWER_VIOLATION": _violation("NVML_PERF_POLICY_POWER"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": _plain("nvmlDeviceGetPowerManagementLimit", divided_by=1000),
    "DCGM_FI_DEV_SLOWDOWN_TEMP": _plain("nvmlDeviceGetTemperatureThreshold", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
    "DCGM_FI_DEV_MEM_MAX_OP_TEMP": _plain("nvmlDeviceGetTemperatureThreshold", "NVML_TEMPERATURE_THRESHOLD_MEM_MAX"),
    "DCGM_FI_DEV_ECC_CURRENT": lambda nvml, handle: nvml.nvmlDeviceGetEccMode(handle)[0],
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _ecc("CORRECTED", "VOLATILE"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _ecc("UNCORRECTED", "VOLATILE"),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": _ecc("UNCORRECTED", "AGGREGATE"),
    "DCGM_FI_DEV_PCIE_LINK_GEN": _plain("nvmlDeviceGetCurrPcieLinkGeneration"),
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": _plain("nvmlDeviceGetMaxPcieLinkGeneration"),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": _plain("nvmlDeviceGetCurrPcieLinkWidth"),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": _plain("nvmlDeviceGetMaxPcieLinkWidth"),
    "DCGM_FI_DEV_PERSISTENCE_MODE": _plain("nvmlDeviceGetPersistenceMode"),
}
"""The readers by the metric's name, all of deploy/alerts/dcgm-counters.csv; units are those of its help texts."""


def read_figures(nvml: Any, handle: Any) -> dict[str, float]:
    """Return a GPU's figures by name, without those that NVML does not have or cannot read; none of a lost GPU."""
    found: dict[str, float] = {}
    for name, read in FIGURES.items():
        try:
            found[name] = read(nvml, handle)
        except nvml.NVMLError_GpuIsLost:
            return {}
        except nvml.NVMLError:
            continue
    return found
