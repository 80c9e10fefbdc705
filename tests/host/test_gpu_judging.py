"""How `make test-gpu` judges, held to a recorded GPU: gpu_burn beside our burn, and a GPU at rest."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.judging import Shown, settled_watts, why_not_as_known, why_not_at_rest
from tests.host.fake import healthy_gpu

RECORDED = Path(__file__).parents[1] / "rehearsal/nodes/recorded/samples.csv"
LIMIT_W = 700.0
GPU_BURN, OURS = (217.0, 242.0), (270.0, 290.0)
"""Seconds of the recording in which they burned (docs/sources.md, A recorded GPU)."""


def recorded(since: float, until: float) -> list[Shown]:
    with RECORDED.open(encoding="utf-8") as file:
        rows = [Shown(float(row["seconds"]), float(row["watts"])) for row in csv.DictReader(file)]
    return [row for row in rows if since <= row.seconds <= until]


@pytest.mark.parametrize("wider_s", [0.0, 2.5, 20.0])
def test_a_burns_power_is_the_same_with_idle_time_before_and_after_it(wider_s: float) -> None:
    since, until = GPU_BURN
    assert settled_watts(recorded(since - min(wider_s, 2.5), until + wider_s)) == pytest.approx(693, abs=1)
    assert settled_watts(recorded(OURS[0], OURS[1] + min(wider_s, 2.5))) == pytest.approx(692, abs=2)


def test_our_burn_holds_beside_gpu_burn() -> None:
    ours, known = settled_watts(recorded(*OURS)), settled_watts(recorded(*GPU_BURN))
    assert why_not_as_known(ours, known, LIMIT_W) == ""


def test_what_once_passed_with_548_percent_does_not_hold() -> None:
    idle_tail = recorded(244.0, 262.0)
    known = statistics.median(one.watts for one in idle_tail)
    assert 5 < 692 / known < 6
    assert "it did not burn, and proves nothing" in why_not_as_known(692, known, LIMIT_W)
    assert "% of the known burner's" in why_not_as_known(692, known, None)


def test_a_burn_that_draws_less_does_not_hold() -> None:
    assert why_not_as_known(502, 693, LIMIT_W).startswith("502 W are 72.4% of the known burner's 693 W")


@pytest.mark.parametrize("curve", [[], [Shown(0.5 * at, 690.0) for at in range(8)]], ids=["nothing", "four seconds"])
def test_too_short_a_burn_is_no_figure(curve: list[Shown]) -> None:
    with pytest.raises(ValueError, match="it was too short"):
        settled_watts(curve)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"power_w": 95.0, "temperature_c": 43.0, "utilization_pct": 4.0, "memory_used_bytes": 100 << 20}, ""),
        ({"power_w": None, "temperature_c": None}, ""),
        ({"power_w": 126.0}, "45 W more"),
        ({"temperature_c": 51.0}, "11 °C warmer"),
        ({"utilization_pct": 99.0}, "99 % busy"),
        ({"memory_used_bytes": 2 << 30}, "2044 MiB more in use"),
        ({"compute_pids": (7, 4711)}, "new compute processes [4711]"),
    ],
)
def test_a_gpu_is_at_rest_if_it_is_as_it_was(changes: dict[str, Any], why: str) -> None:
    start = healthy_gpu(0, power_w=81.0, compute_pids=(7,))
    assert why_not_at_rest(start.model_copy(update=changes), start) == why
