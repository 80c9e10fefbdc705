"""Expectations of devices: taints in a node's ResourceSlices, which cost one GPU and not the node."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from gameday.documents.fields import Bound, DocumentModel, LabelKey, LabelValue


class DeviceTaintEffect(StrEnum):
    """The effect of a device's taint, as Kubernetes has it (KEP-5055)."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


class ExpectedDeviceTaint(DocumentModel):
    """A taint that must appear on a device of the target, in a ResourceSlice."""

    key: LabelKey
    """Key of the taint, such as `gpu.nvidia.com/xid`."""
    value: LabelValue | None = None
    """Value of the taint; null: any."""
    effect: DeviceTaintEffect = DeviceTaintEffect.NO_SCHEDULE
    """Effect of the taint. NoExecute also evicts the pods whose claims have the device."""
    within: Bound
    """Longest time from the fault going in to the taint being in the ResourceSlice."""
    pods_leave_within: Bound | None = None
    """Longest time from the fault going in until no pod that had the device has it any more, while all pods that had
    only other devices of the node keep theirs; null: not judged."""
    clears_within: Bound | None = timedelta(minutes=5)
    """Longest time from the end of the remediation until the taint is gone; null: a person takes it off."""

    def __str__(self) -> str:
        value = "" if self.value is None else f"={self.value}"
        return f"{self.key}{value}:{self.effect}"
