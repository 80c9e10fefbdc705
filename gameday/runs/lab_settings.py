"""The settings of a lab, which a comparison changes for its arms, under a ledger of the comparison's own.

Each game-day has its own ledger for its own changes; the settings outlive it, because only the next arm changes them
again. They are taken back once, at the end, or by the reaper.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.lab_control import configure_lab
from gameday.ledger.entries import Header, RestoreLab
from gameday.ledger.ledger import Ledger
from gameday.values.results import Cleanliness


class ChangedLab:
    """A lab that runs with other settings until `restore`."""

    def __init__(self, lab: Path, kubernetes: Kubernetes, header: Header, lasts: timedelta) -> None:
        """Write into the ledger that the settings will be changed; nothing is changed yet.

        Args:
            lab: The lab's control socket.
            kubernetes: The lab's API server, which keeps the ledger.
            header: The comparison.
            lasts: Longest time until `restore`.

        Raises:
            KubernetesError: The ledger cannot be written.
        """
        self._lab = lab
        self._ledger = Ledger(kubernetes, header)
        self._entry = self._ledger.intend(
            id="lab-settings",
            act="run the lab's control plane with the arms' settings",
            node=None,
            undo=RestoreLab(),
            expires=header.started + lasts,
        )

    def configure(self, rehearsal: dict[str, Any]) -> None:
        """Restart the control plane with an arm's settings, and wait until it is ready.

        Args:
            rehearsal: Keys of a plan's `rehearsal` that differ from those that the lab was started with.

        Raises:
            ControlError: The lab does not take them, or does not start with them.
        """
        configure_lab(self._lab, rehearsal)

    def restore(self) -> None:
        """Restart the control plane with its own settings, and close the ledger.

        Raises:
            ControlError: The lab does not take them back; the reaper tries again.
            KubernetesError: The ledger cannot be deleted; the reaper does it.
        """
        configure_lab(self._lab, {})
        self._ledger.settle(self._entry, Cleanliness.CLEAN, "flow", ())
        self._ledger.delete()
