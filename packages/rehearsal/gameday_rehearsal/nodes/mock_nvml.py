"""A machine's GPUs as configuration of NVIDIA's mock NVML library, for detectors that ask NVML.

The library (NVIDIA/k8s-test-infra, pkg/gpu/mocknvml, read at 3b2b865) reads the file of `MOCK_NVML_CONFIG` once per
process. Its newer releases also read `overrides.yaml` beside that file, every second. Both are JSON, which is also
YAML; only keys that the library reads are written. It can show an Xid only of a lost GPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gameday.host import clock_reasons
from gameday.host.base import GpuSample
from gameday_rehearsal.nodes.gpus import NVLINKS
from gameday_rehearsal.nodes.identity import CUDA_VERSION, DRIVER_VERSION, MODEL
from gameday_rehearsal.nodes.machine import Machine

CONFIG = "nvml.yaml"
OVERRIDES = "overrides.yaml"
_FALLEN_OFF = 79  # the Xid of a lost GPU
_SWITCHES = ("0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:08:00.0")  # of an HGX H100 board
_REASONS = {
    "gpu_idle": clock_reasons.IDLE,
    "applications_clocks_setting": clock_reasons.APPLICATION_CLOCKS,
    "sw_power_cap": clock_reasons.POWER_CAP,
    "hw_slowdown": clock_reasons.HW_SLOWDOWN,
    "sw_thermal_slowdown": clock_reasons.SW_THERMAL,
    "hw_thermal_slowdown": clock_reasons.HW_THERMAL,
}


class MockNvml:
    """The two files of one machine, written whenever their content changes."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self._files = (folder / CONFIG, folder / OVERRIDES)
        self._machine = machine
        self._written: list[str] = []

    def write(self) -> None:
        """Write the GPUs as they are; a reader sees the old file or the new one. Raises OSError."""
        samples = {sample.index: sample for sample in self._machine.samples()}
        # A removed GPU is shown as lost: the library cannot take it away.
        states = {gpu.index: _state(samples.get(gpu.index)) for gpu in self._machine.gpus}
        documents = (self._config(states, _nvlink(samples.values())), _overrides(states))
        texts = [json.dumps(document, indent=1) + "\n" for document in documents]
        if texts == self._written:
            return
        for path, text in zip(self._files, texts, strict=True):
            beside = path.with_suffix(".new")
            beside.write_text(text, encoding="utf-8")
            beside.replace(path)
        self._written = texts

    def _config(self, states: dict[int, dict[str, Any]], nvlink: dict[str, Any]) -> dict[str, Any]:
        major, minor = CUDA_VERSION.split(".")
        return {
            "version": "1.0",
            "system": {
                "driver_version": DRIVER_VERSION,
                "nvml_version": f"12.{DRIVER_VERSION}",
                "cuda_version": CUDA_VERSION,
                "cuda_version_major": int(major),
                "cuda_version_minor": int(minor),
                "num_devices": len(self._machine.gpus),
            },
            "device_defaults": {
                "name": MODEL,
                "brand": "nvidia",
                "architecture": "hopper",
                "compute_capability": {"major": 9, "minor": 0},
            },
            "devices": [
                {
                    "index": gpu.index,
                    "minor_number": gpu.index,
                    "uuid": gpu.uuid,
                    "serial": gpu.serial,
                    "pci": {"bus_id": gpu.sysfs_name.upper(), "device_id": 0x233010DE},
                    **states[gpu.index],
                }
                for gpu in self._machine.gpus
            ],
            "nvlink": nvlink,
        }


def _overrides(states: dict[int, dict[str, Any]]) -> dict[str, Any]:
    return {"version": 1, "devices": {str(index): state for index, state in states.items()}}


def _nvlink(samples: Iterable[GpuSample]) -> dict[str, Any]:
    """Return the board's links; only GPUs with fewer than all are listed, as the library makes the others itself."""
    fewer = [
        {
            "index": sample.index,
            "links": [
                {
                    "link": link,
                    "state": "active" if link < sample.nvlinks_active else "inactive",
                    "remote_device_type": "switch",
                    "remote_pci_bus_id": _SWITCHES[link % len(_SWITCHES)],
                }
                for link in range(NVLINKS)
            ],
        }
        for sample in samples
        if sample.nvlinks_active is not None and sample.nvlinks_active < NVLINKS
    ]
    switches = [{"bdf": bdf, "uuid": f"NVSwitch-{bdf}"} for bdf in _SWITCHES]
    return {"version": 4, "links_per_gpu": NVLINKS, "switches": switches, "device_links": fewer}


def _state(sample: GpuSample | None) -> dict[str, Any]:
    if sample is None or sample.lost:
        return {"failure": {"mode": "fallen_off_bus", "xid": {"code": _FALLEN_OFF}}}
    used, total = sample.memory_used_bytes or 0, sample.memory_total_bytes or 0
    errors = {"device_memory": sample.ecc_dbe_volatile, "total": sample.ecc_dbe_volatile}
    corrected = {"device_memory": sample.ecc_sbe_volatile, "total": sample.ecc_sbe_volatile}
    return {
        "failure": {"mode": "healthy"},
        "thermal": {
            "temperature_gpu_c": round(sample.temperature_c or 0),
            "temperature_memory_c": round(sample.memory_temperature_c or 0),
            "max_operating_c": round(sample.max_operating_c or 0),
            "slowdown_threshold_c": round(sample.slowdown_c or 0),
        },
        "power": {
            "default_limit_mw": _milli(sample.power_limit_default_w),
            "enforced_limit_mw": _milli(sample.power_limit_w),
            "max_limit_mw": _milli(sample.power_limit_default_w),
            "current_draw_mw": _milli(sample.power_w),
        },
        "clocks": {
            "graphics_current": round(sample.sm_clock_mhz or 0),
            "graphics_max": round(sample.sm_clock_max_mhz or 0),
            "sm_current": round(sample.sm_clock_mhz or 0),
            "sm_max": round(sample.sm_clock_max_mhz or 0),
            "memory_current": round(sample.memory_clock_mhz or 0),
            "memory_max": round(sample.memory_clock_mhz or 0),
        },
        "clocks_throttle_reasons": {
            name: bool((sample.clocks_event_reasons or 0) & bit) for name, bit in _REASONS.items()
        },
        "utilization": {"gpu": round(sample.utilization_pct or 0)},
        "memory": {"total_bytes": total, "used_bytes": used, "free_bytes": total - used},
        "pcie": {
            "max_link_gen": sample.pcie_generation_max,
            "current_link_gen": sample.pcie_generation,
            "max_link_width": sample.pcie_width_max,
            "current_link_width": sample.pcie_width,
            "replay_counter": sample.pcie_replay_counter,
        },
        "ecc": {
            "mode_current": _mode(sample.ecc_mode),
            "mode_pending": _mode(sample.ecc_mode_pending),
            "errors": {"volatile": {"single_bit": corrected, "double_bit": errors}},
        },
        "remapped_rows": {
            "correctable": sample.remapped_rows_correctable,
            "uncorrectable": sample.remapped_rows_uncorrectable,
            "pending": sample.row_remap_pending,
            "failure_occurred": sample.row_remap_failure,
        },
        "persistence_mode": _mode(sample.persistence_mode),
    }


def _milli(watts: float | None) -> int:
    return round((watts or 0) * 1000)


def _mode(on: bool | None) -> str:
    return "enabled" if on else "disabled"
