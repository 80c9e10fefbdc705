"""The dcgm-exporter series that a run keeps, and the GPUs that their labels name.

At scale, the rehearsal scrapes only these series and those of the rules. Labels are dcgm-exporter's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gameday.history.events import GpuIdentity

METRICS = (
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_XID_ERRORS",
)
"""GPU figures that a person wants to see around a fault, as DCGM field names (docs/sources.md, dcgm-exporter)."""

RUN_METRICS = (*METRICS, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
"""The series of a game-day: also the counters of ECC errors, which its agent also reads from NVML."""


def gpus_of(series: Iterable[Mapping[str, str]]) -> tuple[GpuIdentity, ...]:
    """Return the GPUs that the labels of dcgm-exporter's series name, in order of their index.

    A MIG instance counts as its GPU.
    """
    found: dict[str, GpuIdentity] = {}
    for labels in series:
        gpu = labels.get("gpu", "")
        if not gpu or gpu in found:
            continue
        found[gpu] = GpuIdentity(
            gpu=gpu,
            uuid=labels.get("UUID", ""),
            model=labels.get("modelName", ""),
            driver=labels.get("DCGM_FI_DRIVER_VERSION", ""),
            pci=labels.get("pci_bus_id", ""),
        )
    return tuple(sorted(found.values(), key=lambda identity: (len(identity.gpu), identity.gpu)))
