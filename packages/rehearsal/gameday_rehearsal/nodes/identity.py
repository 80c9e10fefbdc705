"""The identity of each virtual GPU: stable names, derived from node and index."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass

# Positions of the eight GPUs of an HGX H100 board in Dell's and Supermicro's servers; more than eight continue upwards.
_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
_NAMESPACE = uuid.UUID("6f1d3f0e-4c5b-5a55-9a3b-2f6f0c3f8a10")  # any fixed one, so that our uuid5 names are only ours

MODEL = "NVIDIA H100 80GB HBM3"
PRODUCT_LABEL = "NVIDIA-H100-80GB-HBM3"
DRIVER_VERSION = "550.163.01"
CUDA_VERSION = "12.4"
KERNEL_VERSION = "6.8.0-60-generic"


@dataclass(frozen=True)
class GpuIdentity:
    """A GPU's names: `pci` is the kernel log's without function (0000:1b:00), `bus_id` NVML's (00000000:1B:00.0)."""

    index: int
    uuid: str
    pci: str
    serial: str

    @property
    def bus_id(self) -> str:
        return f"0000{self.pci.upper()}.0"

    @property
    def sysfs_name(self) -> str:
        return f"{self.pci}.0"


def gpu_identities(node: str, gpus: int) -> tuple[GpuIdentity, ...]:
    return tuple(
        GpuIdentity(
            index=index,
            uuid=f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/gpu/{index}')}",
            pci=f"0000:{_bus(index):02x}:00",
            serial=str(1_650_000_000_000 + seeded(node, "serial", index).randrange(10**9)),
        )
        for index in range(gpus)
    )


def machine_id(node: str) -> str:
    return uuid.uuid5(_NAMESPACE, f"{node}/machine").hex


def seeded(*names: object) -> random.Random:
    """Return a separate generator for each thing, so that adding a node changes no other."""
    return random.Random("/".join(map(str, names)))  # noqa: S311 - a model's noise, not a secret


def _bus(index: int) -> int:
    """Return the GPU's bus. Raises ValueError for more than the free buses of one PCI domain."""
    if index < len(_BUSES):
        return _BUSES[index]
    bus = 0xE0 + index - len(_BUSES)
    if bus > 0xFF:
        raise ValueError(f"{index + 1} GPUs on one node; the model has buses for {len(_BUSES) + 0x20}")
    return bus
