"""Taints of devices in a node's ResourceSlices, which cost one GPU and not the whole node."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import ClassVar

from gameday.documents.fields import Bound, LabelKey, LabelValue
from gameday.expect.base import Expectation, Sighting, Signal
from gameday.history.events import DeviceTaintSeen
from gameday.history.journal import History
from gameday.values.nodes import NodeRole

Device = tuple[str, str]
"""A device's driver and name."""


class DeviceTaintEffect(StrEnum):
    """The effect of a device's taint in Kubernetes (KEP-5055)."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


class ExpectedDeviceTaint(Signal):
    """A taint that must appear on a device of the target, in a ResourceSlice."""

    event: ClassVar = DeviceTaintSeen
    check: ClassVar = "device-tainted"
    ends_check: ClassVar = "device-taint-clears"
    ends_by: ClassVar = "clears_within"
    awaited_apart: ClassVar = True
    watch: ClassVar = "devices"
    bounds: ClassVar = ("within", "pods_leave_within")

    key: LabelKey
    """Key of the taint, such as `gpu.nvidia.com/xid`."""
    value: LabelValue | None = None
    """Value of the taint; null: any."""
    effect: DeviceTaintEffect = DeviceTaintEffect.NO_SCHEDULE
    """Effect of the taint. NoExecute also evicts the pods that have the device by a claim."""
    within: Bound
    """Longest time from the fault going in until the taint is in the ResourceSlice."""
    pods_leave_within: Bound | None = None
    """Longest time from the fault going in until the pods that had the device no longer have it, while pods that had
    only other devices of the node keep theirs; null: not judged."""
    clears_within: Bound | None = timedelta(minutes=5)
    """Longest time from the end of the remediation until the taint is gone; null: a person takes it off."""

    def __str__(self) -> str:
        return f"device taint {self.words}"

    @property
    def words(self) -> str:
        """The taint as `kubectl` writes it; without a value if any will do."""
        value = "" if self.value is None else f"={self.value}"
        return f"{self.key}{value}:{self.effect}"

    def comes(self, node: str) -> str:
        return f"A device of {node} is tainted {self.words}"

    def ends(self, node: str) -> str:
        return f"No device of {node} is tainted {self.words} after remediation"

    def amiss(self, seen: DeviceTaintSeen) -> str | None:
        return self._amiss(seen) if seen.present else None

    def is_end(self, seen: DeviceTaintSeen) -> bool:
        return not seen.present and self._amiss(seen) == ""

    def gone(self, history: History, node: str | None) -> list[Sighting]:
        """Return the sightings of a device that lost the taint; none while any device has it."""
        return [] if self.tainted(history, node) else super().gone(history, node)

    def tainted(self, history: History, node: str | None) -> set[Device]:
        """Return the devices that have the taint at the end of the history."""
        found: set[Device] = set()
        for _, one in history.about(DeviceTaintSeen, node):
            if self._amiss(one) == "":
                (found.add if one.present else found.discard)((one.driver, one.device))
        return found

    def ever_tainted(self, history: History, node: str | None) -> set[Device]:
        """Return the devices that had the taint at any time."""
        seen = history.about(DeviceTaintSeen, node)
        return {(one.driver, one.device) for _, one in seen if one.present and self._amiss(one) == ""}

    def _amiss(self, seen: DeviceTaintSeen) -> str | None:
        """Return why a taint with the key is not as expected; empty if it is, None for a taint with another key."""
        if seen.taint.key != self.key:
            return None
        as_wanted = self.value in (None, seen.taint.value) and seen.taint.effect == self.effect
        return "" if as_wanted else f"{seen.taint} instead"


class DeviceTaints(Expectation):
    order: ClassVar = 57
    needs: ClassVar = NodeRole.GPU

    device_taints: tuple[ExpectedDeviceTaint, ...] = ()
    """Taints that must appear on devices of the target, for clusters that allocate GPUs by claims (DRA)."""
