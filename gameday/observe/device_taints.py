"""Watch a target's ResourceSlices for taints and the claims of its devices, if the plan expects device taints."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from gameday.cluster.devices import devices_held, follow_slices, tainted_devices
from gameday.cluster.watch import Follower
from gameday.errors import AdapterError, KubernetesError
from gameday.expect.device_taints.pods import Phase
from gameday.history.events import DevicesHeld, DeviceTaintSeen, SignalUnwatched
from gameday.run.node_changes import Sight
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.values.devices import TaintedDevice

SIGNAL = "devices"


class DeviceTaintWatch:
    """A watch that notes the taints of one node's devices in the history as they come and go."""

    def __init__(self, run: Run, node: str) -> None:
        """Prepare the watch; nothing is sent yet."""
        self._run = run
        self._node = node
        self._known: dict[TaintedDevice, datetime | None] = {}
        self._follower: Follower = follow_slices(run.kubernetes, node, self._changed)

    def begin(self) -> None:
        """Read the present state without noting it, and note every change from now on. Raises AdapterError."""
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


def note_held_or_say(run: Run, result: StepResult, node: str, phase: Phase) -> None:
    try:
        _note_held(run, node, phase)
    except KubernetesError as error:
        result.mark_unknown(f"the claims of {node}'s devices: {error}")


def _note_held(run: Run, node: str, phase: Phase) -> None:
    run.note(DevicesHeld(node=node, phase=phase, held=devices_held(run.kubernetes, node), at=run.clock.now()))
