"""Which signals a plan and its detector expect, for every shipped plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.detectors.load import load_detector
from gameday.detectors.resolve import load_complete_plan
from gameday.detectors.signals import Signal, expected_signals
from gameday.plan.catalogue import find_plan

DETECTOR_PLANS = Path(__file__).parents[2] / "plans" / "detectors"


def signals(plan: str, detector: str) -> list[str]:
    loaded = load_complete_plan(find_plan(plan))
    return [str(name) for name, wanted in expected_signals(loaded.plan, load_detector(detector)).items() if wanted]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("gpu-fell-off-the-bus", ["log", "metric", "alert", "taint", "event"]),
        ("xid-13-application-error", ["log", "event"]),
        ("real-xid-31-application-error", ["log", "metric", "event"]),
        ("dcgm-row-remap-failure", ["metric", "alert"]),
        ("dcgm-pause", ["metric", "alert"]),
        ("gpu-memory-full", ["metric"]),
        ("numa-far-node", ["canary"]),
        ("node-reboot", ["taint"]),
    ],
)
def test_of_a_shipped_plan_where_our_controller_watches(plan: str, expected: list[str]) -> None:
    assert signals(plan, "gameday") == expected


def test_another_detector_expects_other_signals_of_the_same_fault() -> None:
    plan = str(DETECTOR_PLANS / "nvsentinel-row-remap-failure.yaml")
    assert signals(plan, "nvsentinel") == ["metric", "condition", "taint"]
    assert signals(str(DETECTOR_PLANS / "device-plugin-gpu-removed.yaml"), "device-plugin") == ["metric", "allocatable"]


def test_a_negative_control_expects_no_taint_whatever_the_detector_does() -> None:
    assert "taint" not in signals("xid-13-application-error", "konduktor")


def test_the_nine_signals_fake_detector_the_order_of_the_chain() -> None:
    names = ["log", "metric", "alert", "condition", "taint", "event", "allocatable", "canary", "said"]
    assert [str(name) for name in Signal] == names
