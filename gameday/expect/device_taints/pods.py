"""A device's taint must cost only the pods that have the device."""

from __future__ import annotations

from typing import Literal

from gameday.checks.facts import (
    at_most,
    first_fault,
    first_few,
    judge_across_clocks,
    seconds_text,
    stop_reason,
    target_nodes,
)
from gameday.checks.verdict import Status, Verdict, containment_verdict
from gameday.expect.device_taints import ExpectedDeviceTaint
from gameday.history.events import DevicesHeld
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.devices import HeldDevice

ORDER = 57
"""The place in the report: after the verdicts that the taints came, before those that they went."""

Phase = Literal["before", "left", "during"]


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    return [
        judged(expected, history, node)
        for expected in plan.expect.device_taints
        if expected.pods_leave_within
        for node in target_nodes(history)
        for judged in (_pods_leave, _others_keep)
    ]


def held(history: History, node: str | None, phase: Phase) -> DevicesHeld | None:
    """Return the newest note in that phase of the pods that have the node's devices."""
    return next((one for _, one in reversed(history.about(DevicesHeld, node)) if one.phase == phase), None)


def _pods_leave(expected: ExpectedDeviceTaint, history: History, node: str | None) -> Verdict:
    """Judge whether the pods that had a tainted device gave it up in time."""
    assert expected.pods_leave_within is not None
    bound, seconds, measured = expected.pods_leave_within, None, ""
    status, why = Status.UNKNOWN, _not_comparable(expected, history, node, "left")
    fault, before, left = first_fault(history, node), held(history, node, "before"), held(history, node, "left")
    if not why and fault and before and left:
        devices = expected.ever_tainted(history, node)
        concerned = {_hold(one) for one in before.held if (one.driver, one.device) in devices}
        stayed = sorted({one.pod for one in left.held if _hold(one) in concerned})
        if not concerned:
            why = "no pod had the tainted device before the fault"
        elif stayed:
            status, why = Status.BROKEN, f"{first_few(stayed)} still has it"
        else:
            status, seconds, why = judge_across_clocks(history, fault[1].written_at, left.at, bound)
            measured = seconds_text(seconds)
    expectation = f"Pods leave the device of {node or 'the target'} that is tainted {expected.key}"
    return containment_verdict("device-pods-leave", expectation, at_most(bound), measured, status, why, node, seconds)


def _others_keep(expected: ExpectedDeviceTaint, history: History, node: str | None) -> Verdict:
    """Judge whether every pod that had only other devices of the node still has them."""
    status, measured = Status.UNKNOWN, ""
    why = _not_comparable(expected, history, node, "during")
    before, during = held(history, node, "before"), held(history, node, "during")
    if not why and before and during:
        devices = expected.ever_tainted(history, node)
        hit = {one.uid for one in before.held if (one.driver, one.device) in devices}
        others = [one for one in before.held if one.uid not in hit]
        still = {_hold(one) for one in during.held}
        lost = [f"{one.pod} lost {one.device}" for one in others if _hold(one) not in still]
        if not others:
            why = "no pod had another device of the node before the fault"
        else:
            status, why = (Status.BROKEN, first_few(lost)) if lost else (Status.HELD, "")
            measured = f"{len(others) - len(lost)} of {len(others)} devices kept"
    expectation = f"The other devices of {node or 'the target'} stay with their pods"
    return containment_verdict("device-others-kept", expectation, "all", measured, status, why, node)


def _not_comparable(expected: ExpectedDeviceTaint, history: History, node: str | None, phase: Phase) -> str:
    """Return why the pods before and after cannot be compared; empty if they can."""
    if first_fault(history, node) is None:
        return f"not reached: {stop_reason(history)}"
    if not expected.ever_tainted(history, node):
        return "not reached: no device was tainted so"
    if held(history, node, "before") is None or held(history, node, phase) is None:
        return "the claims of the node's devices were not read"
    return ""


def _hold(one: HeldDevice) -> tuple[str, str, str]:
    return (one.driver, one.device, one.uid)
