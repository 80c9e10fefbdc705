"""Wait for taints of devices, and until the pods that had such a device no longer have it."""

from __future__ import annotations

from datetime import timedelta

from gameday.cluster.devices import devices_held
from gameday.documents.fields import format_duration
from gameday.errors import KubernetesError
from gameday.expect.device_taints import ExpectedDeviceTaint
from gameday.expect.device_taints.pods import held
from gameday.observe.device_taints import note_held_or_say
from gameday.observe.injected_fault import InjectedFault
from gameday.observe.signals import await_signals
from gameday.run.run import Run
from gameday.run.steps import StepResult

ORDER = 5
# A list of all claims of the cluster is a large request.
_POLL_S = 1.0


def during_fault(run: Run, result: StepResult, fault: InjectedFault) -> None:
    """Wait for every expected device taint, and until the pods that had such a device no longer have it.

    If one of these is late, the step is broken.
    """
    node = fault.node
    if why := next((one.why_unwatched(run.history(), node) for one in run.plan.expect.device_taints), ""):
        result.mark_unknown(f"the devices of {node}: {why}")
        return
    for expected in run.plan.expect.device_taints:
        if await_signals(run, result, fault, [expected]) and expected.pods_leave_within:
            _await_pods_off(run, result, fault, expected, expected.pods_leave_within)


def signals_seen(run: Run, result: StepResult, fault: InjectedFault) -> None:
    """Note which pods have the target's devices at the end of the step's wait for signals."""
    if any(one.pods_leave_within for one in run.plan.expect.device_taints):
        note_held_or_say(run, result, fault.node, "during")


def _await_pods_off(
    run: Run, result: StepResult, fault: InjectedFault, expected: ExpectedDeviceTaint, bound: timedelta
) -> None:
    before = held(run.history(), fault.node, "before")
    devices = expected.tainted(run.history(), fault.node)
    concerned = {one for one in before.held if (one.driver, one.device) in devices} if before else set()

    def all_left() -> bool | None:
        return None if concerned.intersection(devices_held(run.kubernetes, fault.node)) else True

    what = f"pods to leave the tainted device of {fault.node}"
    try:
        left = run.wait(what, fault.time_left(bound, run.clock.now()), all_left, _POLL_S)
    except KubernetesError as error:
        result.mark_unknown(f"the claims of {fault.node}'s devices: {error}")
        return
    if not left:
        result.mark_broken(f"waited {format_duration(bound)} in vain for {what}")
    note_held_or_say(run, result, fault.node, "left")
