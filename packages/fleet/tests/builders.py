"""Fleets of made-up figures, and the record of the run that measured them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from gameday.shipped import checkout
from gameday.values.results import Cleanliness
from gameday_fleet.record import FleetRecord, ProbedGpu, add_probes

H100 = "NVIDIA H100 80GB HBM3"
BEGAN = datetime(2026, 3, 3, 9, tzinfo=UTC)


def gpu(number: int, **changes: Any) -> ProbedGpu:
    """The so many-th GPU of a fleet of eight a node, an ordinary one but for the changes."""
    figures: dict[str, Any] = {
        "gemm_tflops": 740.0,
        "memory_gbs": 2900.0,
        "link_gbs": 54.8,
        "nvlink_gbs": 478.1,
        "sm_clock_mhz": 1980.0,
        "temperature_c": 60.0,
        "power_w": 680.0,
    }
    place = {"node": f"n{number // 8}", "gpu": number % 8, "uuid": f"GPU-{number:08d}", "model": H100}
    return ProbedGpu.model_validate(place | figures | changes)


def healthy(count: int, seed: int = 0, sigma: float = 0.0148) -> list[ProbedGpu]:
    """GPUs whose rates have a normal spread, without any end to it."""
    draw = random.Random(seed)
    return [
        gpu(
            number,
            gemm_tflops=740 * (1 + draw.gauss(0, sigma)),
            memory_gbs=2900 * (1 + draw.gauss(0, 0.004)),
            temperature_c=60.0 + draw.gauss(0, 2),
            power_w=680 * (1 + draw.gauss(0, 0.01)),
        )
        for number in range(count)
    ]


def record(id: str = "fleet-1", **changes: Any) -> FleetRecord:
    values: dict[str, Any] = {
        "id": id,
        "cluster": "c",
        "trigger": "manual",
        "command": "gameday fleet",
        "at_once": 4,
        "seconds": 30,
        "started": BEGAN,
        "ended": BEGAN + timedelta(minutes=5),
        "nodes": 8,
        "cleanliness": Cleanliness.CLEAN,
    }
    return FleetRecord.model_validate(values | changes)


def write(folder: Path, gpus: list[ProbedGpu], **changes: Any) -> Path:
    """Write a fleet run's folder."""
    record(folder.name, **changes).save(folder)
    add_probes(folder, gpus)
    return folder


def documented(after: str) -> list[dict[str, Any]]:
    """The documents of the first block of YAML behind these words in docs/fleet.md."""
    text = (checkout() / "docs" / "fleet.md").read_text(encoding="utf-8")
    block = text[text.index(after) :].partition("```yaml\n")[2].partition("```")[0]
    return list(YAML(typ="safe", pure=True).load_all(block))
