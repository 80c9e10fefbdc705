"""Everything on a virtual machine that faults may change, as plain data: equal snapshots prove a full undo.

Real hosts have no such page, and our own code never asks for it: it is for proofs that a fault left nothing behind.
Left out is what moves by itself (temperatures, counters of work done, the log's lines) and what a remediation changes
for good (the boot id, the last Xid that a driver reported).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gameday_rehearsal.nodes.machine import Machine

_OF_A_GPU = (
    "lost",
    "removed",
    "dbe_volatile",
    "sbe_volatile",
    "remap_pending",
    "remap_failure",
    "nvlinks",
    "nvlink_mbps",
    "pcie_generation",
    "pcie_width",
    "wrong_results",
    "ecc",
    "ecc_pending",
    "thermal_resistance",
    "power_limit",
    "clock_floor",
    "clock_ceiling",
    "persistence",
    "burst_load",
    "work_load",
    "held_mib",
)
"""Arrays of `GpuFleet`: settings, and hardware state that stays until somebody repairs it."""


def snapshot(machine: Machine) -> dict[str, Any]:
    fleet, cache, index = machine.fleet, machine.cache, machine.index
    gpus = range(len(machine.gpus))
    return {
        "powered": machine.powered,
        "gpus": {name: getattr(fleet, name)[index].tolist() for name in _OF_A_GPU},
        "units": dict(machine.units),
        "timers": sorted(machine.timers),
        "wake_alarm": machine.wake_at is not None,
        "works": sorted(machine.works),
        "frozen_pods": machine.components.frozen_pods(),
        "files": dict(machine.extra_files),
        "printk_devkmsg": machine.log.devkmsg,
        "network": _without_counters(asdict(machine.network)),
        "dcgm": {
            "injected": {str(gpu): cache.injected((index, gpu)) for gpu in gpus if cache.injected((index, gpu))},
            **{name: bool(getattr(cache, name)[index]) for name in ("running", "exporting", "collecting", "blind")},
        },
    }


def _without_counters(network: dict[str, Any]) -> dict[str, Any]:
    for interface in network["interfaces"].values():
        for counter in ("carrier_changes", "packets"):
            del interface[counter]
    return network
