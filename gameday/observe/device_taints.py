"""Watch a target's ResourceSlices for taints, and the claims of its devices, where the plan expects device taints."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from gameday.checks.device_pods import Phase, held
from gameday.cluster.devices import devices_held, follow_slices, tainted_devices
from gameday.cluster.watch import Follower
from gameday.documents.fields import format_duration
from gameday.errors import AdapterError, KubernetesError
from gameday.expect.device_taints import ExpectedDeviceTaint
from gameday.history.events import DevicesHeld, DeviceTaintSeen, SignalUnwatched
from gameday.observe.deadline import await_within
from gameday.observe.injected_fault import InjectedFault
from gameday.run.node_changes import Sight
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.values.devices import TaintedDevice

SIGNAL = "devices"
# A list of every claim of the cluster is no small request.
_POLL_S = 1.0


class DeviceTaintWatch:
    """The taints of one node's devices, noted in the history as they come and go."""

    def __init__(self, run: Run, node: str) -> None:
        """Prepare the watch; nothing is sent yet."""
        self._run = run
        self._node = node
        self._known: dict[TaintedDevice, datetime | None] = {}
        self._follower: Follower = follow_slices(run.kubernetes, node, self._changed)

    def begin(self) -> None:
        """Read the present state, which is no news, and note every change from now on. Raises AdapterError."""
        self._follower.__enter__()
        self._run.background.callback(self._follower.stop)
        self._follower.require_synced()

    def _changed(self, kind: str, changed: Any) -> None:
        now = tainted_devices(self._follower.objects())
        if self._follower.wait_synced(0):
            at = self._run.clock.now()
            sight = Sight(at, at - timedelta(seconds=self._follower.unseen_s))
            for one in sorted(now.keys() ^ self._known.keys(), key=str):
                dated = sight.dated(now.get(one), "timeAdded")
                seen = DeviceTaintSeen(
                    node=self._node,
                    driver=one.driver,
                    device=one.device,
                    taint=one.taint,
                    present=one in now,
                    at=dated.latest,
                    dated=dated,
                )
                self._run.note(seen)
        self._known = now


def watch_devices(run: Run, node: str) -> None:
    """Begin to watch a target's devices, and note which pods have them."""
    try:
        DeviceTaintWatch(run, node).begin()
        _note_held(run, node, "before")
    except AdapterError as error:
        run.note(SignalUnwatched(node=node, signal=SIGNAL, why=str(error)))


def await_device_taints(run: Run, result: StepResult, fault: InjectedFault) -> None:
    """Wait for every expected device taint, and until the pods that had such a device have it no more.

    What does not happen in time breaks the step.
    """
    node = fault.node
    if why := next((one.why for one in run.history().of(SignalUnwatched) if _is_of(one, node)), None):
        result.mark_unknown(f"the devices of {node}: {why}")
        return
    for expected in run.plan.expect.device_taints:
        sightings = partial(expected.sightings, node=node)
        came = await_within(run, result, expected.awaited(node), expected.within, fault, sightings)
        if came and expected.pods_leave_within:
            _await_pods_off(run, result, fault, expected, expected.pods_leave_within)


def note_devices_during(run: Run, result: StepResult, fault: InjectedFault) -> None:
    """Note which pods have the target's devices when the fault has been in for as long as the step takes."""
    if any(one.pods_leave_within for one in run.plan.expect.device_taints):
        _note_held_or_say(run, result, fault.node, "during")


def _is_of(unwatched: SignalUnwatched, node: str) -> bool:
    return (unwatched.signal, unwatched.node) == (SIGNAL, node)


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
    _note_held_or_say(run, result, fault.node, "left")


def _note_held_or_say(run: Run, result: StepResult, node: str, phase: Phase) -> None:
    try:
        _note_held(run, node, phase)
    except KubernetesError as error:
        result.mark_unknown(f"the claims of {node}'s devices: {error}")


def _note_held(run: Run, node: str, phase: Phase) -> None:
    run.note(DevicesHeld(node=node, phase=phase, held=devices_held(run.kubernetes, node), at=run.clock.now()))
