"""The claims: one of several controllers leads, one of several repairers leads, and one process repairs a node.

A claim is a Lease (`gameday.cluster.lease`) under its holder's unique name.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta

from gameday.cluster.lease import Lease
from gameday.errors import KubernetesError, LeaseLostError

log = logging.getLogger(__name__)

CLAIM_DURATION = timedelta(seconds=15)
"""Time without a renewal after which a holder counts as dead: client-go's default for leader election."""
LEADING_CONTROLLER = "gameday-health"
"""The claim of the leading controller. Names that begin with `gameday-node-` are leases of game-days."""
LEADING_REPAIRER = "gameday-repair"
"""The claim of the leading repairer."""
_LONGEST_NAME = 253
_LOOK_S = 1.0


def claim_of(node: str) -> str:
    """Return the name of the claim on a node's repair."""
    name = f"{LEADING_REPAIRER}-{node}"
    return name if len(name) <= _LONGEST_NAME else f"{LEADING_REPAIRER}-{hashlib.sha256(node.encode()).hexdigest()}"


def holder_name() -> str:
    """Return a unique name for a holder of claims; it shows where the holder runs."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


class Lead:
    """The claim of the leading controller: waited for, kept while it works, and given back."""

    def __init__(self, claim: Lease, on_lost: Callable[[LeaseLostError], object]) -> None:
        """Hold nothing yet.

        Args:
            claim: The claim, used only here.
            on_lost: Called once, by another thread, when the lead is lost. It must end the process: a thread
                that waits for an answer of the API server would otherwise continue as the leader.
        """
        self._claim = claim
        self.check = claim.check
        """Raises LeaseLostError unless this process leads."""
        self._on_lost = on_lost
        self._released = threading.Event()

    def wait(self, stopping: threading.Event, on_standby: Callable[[], object]) -> bool:
        """Wait for the lead and keep it; return False if `stopping` was set first.

        Args:
            stopping: Ends the wait.
            on_standby: Called once if the lead is not free immediately.
        """
        trouble, is_first = "", True
        while not stopping.is_set():
            try:
                if self._claim.try_take():
                    self._claim.keep_renewing()
                    threading.Thread(target=self._await_loss, name="lead", daemon=True).start()
                    return True
                trouble = ""
            except KubernetesError as error:
                if str(error) != trouble:
                    log.warning("the lead cannot be taken, trying again: %s", error)
                trouble = str(error)
            if is_first:
                is_first = False
                on_standby()
            stopping.wait(_LOOK_S)
        return False

    def release(self) -> None:
        """Give the lead back, so that another controller takes it within a second."""
        self._released.set()
        self._claim.release()

    def _await_loss(self) -> None:
        while not self._released.wait(min(_LOOK_S, self._claim.seconds_left)):
            try:
                self.check()
            except LeaseLostError as error:
                if not self._released.is_set():
                    self._on_lost(error)
                return
