"""The lead: one of several controllers of a cluster works, and the others stand by."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from gameday.errors import KubernetesError, LeaseLostError
from gameday_health.claim import Claim

log = logging.getLogger(__name__)

_LOOK_S = 1.0


class Lead:
    """The claim of the leading controller: waited for, kept while it works, and given back."""

    def __init__(self, claim: Claim, on_lost: Callable[[LeaseLostError], object]) -> None:
        """Hold nothing yet.

        Args:
            claim: The claim, used only here.
            on_lost: Called once, by another thread, when the lead is lost. It must end the process: a thread
                that waits for an answer of the API server would otherwise continue as the leader.
        """
        self._claim = claim
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

    def check(self) -> None:
        """Do nothing while this process leads.

        Raises:
            LeaseLostError: Another process may lead.
        """
        if not self._claim.is_held:
            raise LeaseLostError("the lead is lost: another controller may go on from the last checkpoint")

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
