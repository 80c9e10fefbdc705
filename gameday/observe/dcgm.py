"""Which dcgm-exporter series a run keeps, and whose GPUs they are by their labels.

The rehearsal at scale scrapes no more than these series and the rules'. Labels are
dcgm-exporter's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gameday.history.events import GpuIdentity

# What a person wants to see of a GPU around a fault; DCGM field names (docs/sources.md, dcgm-exporter).
METRICS = (
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_XID_ERRORS",
)


def gpus_of(series: Iterable[Mapping[str, str]]) -> tuple[GpuIdentity, ...]:
    """The GPUs that dcgm-exporter's series speak of, by their labels, in order of their index; MIG instances are their
    GPU."""
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
    return tuple(sorted(found.values(), key=lambda one: (len(one.gpu), one.gpu)))
