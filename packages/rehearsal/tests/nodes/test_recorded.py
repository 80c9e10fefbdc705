"""The model beside a real GPU: the load of a recording of an H200 is replayed, and each sample is held.

recorded/samples.csv is from a recording at 5 Hz (docs/sources.md, A recorded GPU), without its last seconds, in which
memory was filled: every sample of the six seconds after each change of the load, one in five else. recorded/load.csv
says what the GPU did: known to a second or so, and begun when the watts begin to climb or to fall. How heavy each kind
of work is was not recorded: LOADS has one figure for each.
"""

from __future__ import annotations

import csv
from bisect import bisect
from dataclasses import dataclass
from pathlib import Path

import pytest

from gameday_rehearsal.nodes.gpus import GpuFleet
from tests.rehearsal.nodes.conftest import Clock

RECORDED = Path(__file__).parent / "recorded"
DEGREES, SHARE = 3.0, 0.05
APART_S = 0.2
"""Time between two samples: a change is seen so much too late, and the model is looked at so much before and after."""
_STEP_S = 0.05
LOADS = {
    "burn": 1.0,
    "lighter burn": 0.84,  # this and the next two: by the clock that they had at the same 692 W
    "gpu_burn": 0.77,
    "lighter products": 0.72,
    "measurement": 0.65,  # QA's, before its copies
    "factors of one": 0.46,  # by their 502 W at 1655 MHz
    "copies": 0.25,
    "small work": 0.008,  # a context is made, a kernel spins: ten watts
}
COPIES = "copies"
"""Not held: copies within the GPU heat its memory more, and its die less, than products of as many watts."""
LEFT_OUT = {
    "the memory's sensor, one sample 2 °C below both neighbours": (0.4,),
    "the memory is warm from copies, or from gpu_burn's comparing, which reads it": (117.15, 231.03, 242.24, 357.53),
    "a context has ended: NVML says idle before the clock falls, which takes half a second": (
        *(22.28, 22.48, 23.08, 56.51, 70.52, 79.52, 88.53, 102.54),
    ),
    "training has ups and downs of its own": (64.91, 65.11, 66.11, 66.31, 66.51),
    "a load has ended: SwPowerCap stays for half a second": (127.56, 149.58, 172.79, 213.62, 291.28),
    "gpu_burn compares, and draws less for a fifth of a second": (218.02, 218.63, 218.83, 221.63),
    "one sample of a clock that hunts for the limit, or of a pause between two parts of a burn": (
        *(113.35, 114.35, 117.95, 152.18, 153.58, 195.01, 295.89, 299.49),
    ),
}
"""Why a sample is not held, and when it was taken."""


Changes = list[tuple[float, str]]


@dataclass(frozen=True)
class Reading:
    seconds: float
    watts: float
    die_c: float
    memory_c: float
    sm_mhz: float
    reasons: int


def rows(name: str) -> list[dict[str, str]]:
    with (RECORDED / name).open() as file:
        return list(csv.DictReader(file))


def doing(changes: Changes, seconds: float) -> str:
    return changes[bisect([since for since, _ in changes], seconds) - 1][1]


@pytest.fixture(scope="module")
def samples() -> list[Reading]:
    return [
        Reading(
            *map(float, (row[key] for key in ("seconds", "watts", "die_c", "memory_c", "sm_mhz"))), int(row["reasons"])
        )
        for row in rows("samples.csv")
    ]


@pytest.fixture(scope="module")
def changes() -> Changes:
    return [(float(row["since"]), row["doing"]) for row in rows("load.csv")]


@pytest.fixture(scope="module")
def model(changes: Changes) -> list[Reading]:
    """The model's readings, one each twentieth of a second."""
    clock = Clock()
    began = clock.now
    fleet, cell = GpuFleet(["a"], 1, clock), (0, 0)
    fleet._silicon[:], fleet._phase[:] = 0, -began - 40  # a die in the middle; no checkpoint from 48 to 97 s
    readings = []
    for step in range(round(361 / _STEP_S)):
        clock.now = began + step * _STEP_S
        fleet.advance()
        derived = (fleet.power, fleet.temperature, fleet.memory_temperature, fleet.sm_clock)
        watts, die_c, memory_c, sm_mhz = (float(array[cell]) for array in derived)
        readings.append(Reading(step * _STEP_S, watts, die_c, memory_c, sm_mhz, int(fleet.reasons[cell])))
        now = doing(changes, step * _STEP_S)
        fleet.held_mib[cell] = 0 if now == "idle" else 600
        fleet.set_pod_load(cell, 0.78 if now == "training" else 0.0)
        fleet.set_work_load(cell, LOADS.get(now, 0.0))
    return readings


def missed(sample: Reading, model: list[Reading]) -> list[str]:
    """The quantities in which the model is off, at every moment at which the sample can have been."""
    near = [reading for reading in model if abs(reading.seconds - sample.seconds) <= APART_S + _STEP_S / 2]

    def off(name: str, most: float) -> bool:
        values, seen = [getattr(reading, name) for reading in near], getattr(sample, name)
        return max(min(values) - seen, seen - max(values)) > most

    found = [name for name in ("die_c", "memory_c") if off(name, DEGREES)]
    found += [name for name in ("watts", "sm_mhz") if off(name, SHARE * getattr(sample, name))]
    return found + ["reasons"] * (sample.reasons not in {reading.reasons for reading in near})


def test_the_model_follows_the_recorded_load(samples: list[Reading], model: list[Reading], changes: Changes) -> None:
    left_out = {at for moments in LEFT_OUT.values() for at in moments}
    held = [sample for sample in samples if doing(changes, sample.seconds) != COPIES and sample.seconds not in left_out]
    assert {sample.seconds: found for sample in held if (found := missed(sample, model))} == {}
    assert len(held) > 0.95 * len(samples)
    assert {sample.seconds for sample in samples} >= left_out
