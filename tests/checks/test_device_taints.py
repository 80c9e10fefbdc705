"""Taints of devices: in time, gone again, and what became of the pods that had the device, and of all others."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import DevicesHeld, DeviceTaintSeen, SignalUnwatched
from gameday.history.frames import Frames
from gameday.plan.expectations import Expectations
from gameday.plan.models import Plan
from gameday.values.devices import HeldDevice
from gameday.values.nodes import Taint
from tests.report.run_builder import FAULT_AT, NODE, PLAN, Timed, at, history_of, passing

KEY, DRIVER = "gpu.nvidia.com/xid", "gpu.nvidia.com"
CHECKS = ("device-tainted", "device-pods-leave", "device-others-kept", "device-taint-clears")
Phase = Literal["before", "left", "during"]


def plan(**changes: Any) -> Plan:
    taint = {"key": KEY, "value": "79", "effect": "NoExecute", "within": "10s", "pods_leave_within": "30s"}
    return PLAN.model_copy(update={"expect": Expectations.model_validate({"device_taints": [taint | changes]})})


def tainted(seconds: float, *, present: bool = True, value: str = "79", effect: str = "NoExecute") -> Timed:
    taint = Taint(key=KEY, value=value, effect=effect)
    event = DeviceTaintSeen(
        node=NODE, driver=DRIVER, device="gpu-3", taint=taint, present=present, at=at(FAULT_AT + seconds)
    )
    return Timed(FAULT_AT + seconds, event)


def holding(seconds: float, phase: Phase, **devices: str) -> Timed:
    """Devices by name, with `_` for `-`, and the UID of the pod that has each."""
    held = tuple(
        HeldDevice(driver=DRIVER, device=name.replace("_", "-"), pod=f"ns/{uid}", uid=uid)
        for name, uid in devices.items()
    )
    return Timed(FAULT_AT + seconds, DevicesHeld(node=NODE, phase=phase, held=held, at=at(FAULT_AT + seconds)))


BEFORE = holding(-0.5, "before", gpu_2="hit", gpu_3="hit", gpu_4="other")
LEFT = holding(4, "left", gpu_4="other")
DURING = holding(9, "during", gpu_4="other")
GONE = tainted(280, present=False)
GOOD = (BEFORE, tainted(1), LEFT, DURING, GONE)


def judge(check: str, *seen: Timed, of: Plan | None = None) -> Verdict:
    (found,) = [
        one for one in run_checks(of or plan(), history_of([*passing(), *seen]), Frames()) if one.check == check
    ]
    return found


@pytest.mark.parametrize(
    ("check", "measured"), list(zip(CHECKS, ["1.0 s", "4.0 s", "1 of 1 devices kept", None], strict=True))
)
def test_a_device_that_is_tainted_and_left_holds_every_expectation(check: str, measured: str | None) -> None:
    verdict = judge(check, *GOOD)
    assert verdict.status is Status.HELD, verdict.why
    assert measured in (None, verdict.measured)


def test_another_effect_or_value_is_named() -> None:
    for other in (tainted(1, effect="NoSchedule"), tainted(1, value="94")):
        verdict = judge("device-tainted", BEFORE, other)
        assert verdict.status is Status.BROKEN
        assert verdict.why.endswith("instead")


def test_any_value_is_taken_where_the_plan_names_none() -> None:
    assert judge("device-tainted", tainted(1, value="94"), of=plan(value=None)).status is Status.HELD


def test_a_taint_that_does_not_come_is_broken_and_says_nothing_of_pods() -> None:
    assert judge("device-tainted", BEFORE).status is Status.BROKEN
    for check in ("device-pods-leave", "device-others-kept"):
        assert (judge(check, BEFORE).status, judge(check, BEFORE).why) == (
            Status.UNKNOWN,
            "not reached: no device was tainted so",
        )


def test_devices_that_could_not_be_watched_prove_nothing() -> None:
    unwatched = SignalUnwatched(node=NODE, signal="devices", why="forbidden")
    verdict = judge("device-tainted", Timed(FAULT_AT - 1, unwatched))
    assert (verdict.status, verdict.why) == (Status.UNKNOWN, "forbidden")


def test_a_pod_that_keeps_the_tainted_device_is_broken_and_named() -> None:
    verdict = judge("device-pods-leave", BEFORE, tainted(1), holding(31, "left", gpu_3="hit"), DURING)
    assert (verdict.status, verdict.why) == (Status.BROKEN, "ns/hit still has it")


def test_another_pod_on_the_device_is_nobody_who_stayed() -> None:
    assert judge("device-pods-leave", BEFORE, tainted(1), holding(4, "left", gpu_3="new")).status is Status.HELD


def test_a_pod_that_leaves_too_late_is_broken() -> None:
    assert judge("device-pods-leave", BEFORE, tainted(1), holding(31, "left")).status is Status.BROKEN


def test_a_neighbour_that_loses_its_device_is_broken_and_named() -> None:
    verdict = judge("device-others-kept", BEFORE, tainted(1), LEFT, holding(9, "during", gpu_5="other"))
    assert (verdict.status, verdict.why) == (Status.BROKEN, "ns/other lost gpu-4")


@pytest.mark.parametrize("check", ["device-pods-leave", "device-others-kept"])
def test_a_node_without_pods_proves_nothing(check: str) -> None:
    nobody = (holding(-0.5, "before"), tainted(1), holding(4, "left"), holding(9, "during"))
    assert judge(check, *nobody).status is Status.UNKNOWN


def test_claims_that_could_not_be_read_prove_nothing() -> None:
    assert judge("device-others-kept", BEFORE, tainted(1), LEFT).why == "the claims of the node's devices were not read"


def test_a_taint_that_stays_is_broken() -> None:
    assert judge("device-taint-clears", *GOOD[:-1]).status is Status.BROKEN


def test_nothing_is_judged_that_the_plan_does_not_expect() -> None:
    only = plan(pods_leave_within=None, clears_within=None)
    checks = {one.check for one in run_checks(only, history_of([*passing(), *GOOD]), Frames())}
    assert checks.isdisjoint(CHECKS[1:])
