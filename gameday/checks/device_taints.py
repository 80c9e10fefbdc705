"""The device taints the plan names must come in time and go again, and cost only the pods that have the device."""

from __future__ import annotations

from typing import Literal

from gameday.checks.containment import containment_verdict
from gameday.checks.deadlines import Sighting, appears_within, as_expected, clears_within, since_fault
from gameday.checks.facts import (
    at_most,
    first_fault,
    first_few,
    judge_across_clocks,
    seconds_text,
    stop_reason,
    target_nodes,
)
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import DevicesHeld, DeviceTaintSeen, SignalUnwatched
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.device_taints import ExpectedDeviceTaint
from gameday.plan.models import Plan
from gameday.values.devices import HeldDevice

ORDER = 56

Phase = Literal["before", "left", "during"]
Device = tuple[str, str]
"""Driver and name."""


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for expected in plan.expect.device_taints:
        for node in target_nodes(history):
            verdicts.append(_comes(expected, history, node))
            if expected.pods_leave_within:
                verdicts += [_pods_leave(expected, history, node), _others_keep(expected, history, node)]
            if expected.clears_within and plan.recover.gives_node_back:
                verdicts.append(_clears(expected, history, node))
    return verdicts


def sightings(expected: ExpectedDeviceTaint, history: History, node: str | None) -> list[Sighting]:
    """The taint as the plan wants it, oldest first, since the fault."""
    return as_expected(_of_key(expected, history, node))


def tainted(expected: ExpectedDeviceTaint, history: History, node: str | None) -> set[Device]:
    """Return the devices that have the taint at the end of the history."""
    found: set[Device] = set()
    for _, seen in history.about(DeviceTaintSeen, node):
        if _amiss(expected, seen) == "":
            (found.add if seen.present else found.discard)((seen.driver, seen.device))
    return found


def held(history: History, node: str | None, phase: Phase) -> DevicesHeld | None:
    """Return the newest note of that phase of the pods that have the node's devices."""
    return next((one for _, one in reversed(history.about(DevicesHeld, node)) if one.phase == phase), None)


def _amiss(expected: ExpectedDeviceTaint, seen: DeviceTaintSeen) -> str | None:
    """Return what is not as expected of a taint with the key; empty: nothing, None: it has another key."""
    if seen.taint.key != expected.key:
        return None
    as_wanted = expected.value in (None, seen.taint.value) and seen.taint.effect == expected.effect
    return "" if as_wanted else f"{seen.taint} instead"


def _of_key(expected: ExpectedDeviceTaint, history: History, node: str | None) -> list[Sighting]:
    found = [
        Sighting(record, seen.at, amiss, seen.dated)
        for record, seen in history.about(DeviceTaintSeen, node)
        if seen.present and (amiss := _amiss(expected, seen)) is not None
    ]
    return since_fault(history, node, found)


def _comes(expected: ExpectedDeviceTaint, history: History, node: str | None) -> Verdict:
    verdict = appears_within(
        history,
        node,
        "device-tainted",
        f"A device of {node or 'the target'} is tainted {expected}",
        expected.within,
        _of_key(expected, history, node),
    )
    unwatched = [one for one in history.of(SignalUnwatched) if (one.signal, one.node) == ("devices", node)]
    if unwatched and verdict.status is Status.BROKEN:
        return verdict.model_copy(update={"status": Status.UNKNOWN, "why": unwatched[0].why})
    return verdict


def _clears(expected: ExpectedDeviceTaint, history: History, node: str | None) -> Verdict:
    assert expected.clears_within is not None
    gone = [
        Sighting(record, seen.at, dated=seen.dated)
        for record, seen in history.about(DeviceTaintSeen, node)
        if not seen.present and _amiss(expected, seen) == ""
    ]
    return clears_within(
        history,
        node,
        "device-taint-clears",
        f"No device of {node or 'the target'} is tainted {expected} after remediation",
        expected.clears_within,
        sightings(expected, history, node),
        [] if tainted(expected, history, node) else since_fault(history, node, gone),
    )


def _ever_tainted(expected: ExpectedDeviceTaint, history: History, node: str | None) -> set[Device]:
    seen = history.about(DeviceTaintSeen, node)
    return {(one.driver, one.device) for _, one in seen if one.present and _amiss(expected, one) == ""}


def _pods_leave(expected: ExpectedDeviceTaint, history: History, node: str | None) -> Verdict:
    """Judge whether the pods that had a device of this taint had it no more in time."""
    assert expected.pods_leave_within is not None
    bound, seconds, measured = expected.pods_leave_within, None, ""
    status, why = Status.UNKNOWN, _not_comparable(expected, history, node, "left")
    fault, before, left = first_fault(history, node), held(history, node, "before"), held(history, node, "left")
    if not why and fault and before and left:
        devices = _ever_tainted(expected, history, node)
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
    """Judge whether every pod that had only other devices of the node has the same ones still."""
    status, measured = Status.UNKNOWN, ""
    why = _not_comparable(expected, history, node, "during")
    before, during = held(history, node, "before"), held(history, node, "during")
    if not why and before and during:
        devices = _ever_tainted(expected, history, node)
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
    """Return why the pods before and after cannot be compared; empty where they can."""
    if first_fault(history, node) is None:
        return f"not reached: {stop_reason(history)}"
    if not _ever_tainted(expected, history, node):
        return "not reached: no device was tainted so"
    if held(history, node, "before") is None or held(history, node, phase) is None:
        return "the claims of the node's devices were not read"
    return ""


def _hold(one: HeldDevice) -> tuple[str, str, str]:
    return (one.driver, one.device, one.uid)
