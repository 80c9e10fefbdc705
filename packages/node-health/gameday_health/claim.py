"""Claims: one of several controllers leads, one of several repairers leads, and one process repairs a node.

A claim is a Lease. Our own clock decides whether its holder is alive, not the holder's: a claim is taken over only
after it was seen unchanged for its whole duration.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from gameday.clock import boottime_s
from gameday.errors import KubernetesError
from gameday_health.api import CONFLICT, NOT_FOUND, ExplainedApi

CLAIM_DURATION = timedelta(seconds=15)
"""Time without a renewal after which a holder counts as dead: client-go's default for leader election."""
LEADING_CONTROLLER = "gameday-health"
"""The claim of the leading controller. Names that begin with `gameday-node-` are leases of game-days."""
LEADING_REPAIRER = "gameday-repair"
"""The claim of the leading repairer."""
_RENEWALS_PER_DURATION = 5
_LONGEST_NAME = 253


def claim_of(node: str) -> str:
    """Return the name of the claim on a node's repair."""
    name = f"{LEADING_REPAIRER}-{node}"
    return name if len(name) <= _LONGEST_NAME else f"{LEADING_REPAIRER}-{hashlib.sha256(node.encode()).hexdigest()}"


def holder_name() -> str:
    """Return a unique name for a holder of claims; it shows where the holder runs."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


class Claim:
    """A claim that one process holds or waits for."""

    def __init__(self, api: ExplainedApi, name: str, holder: str, duration: timedelta = CLAIM_DURATION) -> None:
        self._api = api
        self._name = name
        self._holder = holder
        self._duration_s = duration.total_seconds()
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"
        self._observed: tuple[Any, ...] = ()
        self._observed_at = 0.0
        self._renewed_at = float("-inf")
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def try_take(self) -> bool:
        """Take the claim if it is free or its holder was seen dead; return True if it is ours now.

        A holder is seen dead after calls of this over the claim's whole duration.

        Raises:
            KubernetesError: The claim cannot be read or written.
        """
        asked = boottime_s()
        found = self._api.get(f"{self._collection}/{self._name}")
        try:
            if found is None:
                self._api.request("POST", self._collection, {"metadata": {"name": self._name}, "spec": self._spec()})
            elif self._is_free(found):
                self._patch(found, self._spec())
            else:
                return False
        except KubernetesError as error:
            if error.status in (CONFLICT, NOT_FOUND):
                return False
            raise
        self._renewed_at = asked
        return True

    def _is_free(self, lease: dict[str, Any]) -> bool:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity")
        if not holder or holder == self._holder:
            return True
        now, seen = boottime_s(), (lease["metadata"]["uid"], holder, spec.get("acquireTime"), spec.get("renewTime"))
        if seen != self._observed:
            self._observed, self._observed_at = seen, now
        return now - self._observed_at >= float(spec.get("leaseDurationSeconds") or self._duration_s)

    def keep_renewing(self) -> None:
        """Renew the claim in the background until `release`, or until it is lost."""
        if self._thread is not None and self._thread.is_alive():
            return  # an outage has cost the claim, and it was taken again
        self._stop.clear()
        self._thread = threading.Thread(target=self._renew, name=f"claim {self._name}", daemon=True)
        self._thread.start()

    @property
    def is_held(self) -> bool:
        """True while no other process can have taken the claim over."""
        return self.seconds_left > 0

    @property
    def seconds_left(self) -> float:
        """Seconds until another process may take the claim over, unless it is renewed; 0 if it may now."""
        return max(0.0, self._renewed_at + self._duration_s - boottime_s())

    def release(self) -> None:
        """Give the claim back; if the API server cannot be reached, it expires by itself."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2.0)
        if not self.is_held:
            return
        self._renewed_at = float("-inf")
        try:
            found = self._api.get(f"{self._collection}/{self._name}")
            if found and (found.get("spec") or {}).get("holderIdentity") == self._holder:
                body = {"preconditions": {"resourceVersion": found["metadata"]["resourceVersion"]}}
                self._api.request("DELETE", f"{self._collection}/{self._name}", body)
        except KubernetesError:
            return

    def _renew(self) -> None:
        while not self._stop.wait(self._duration_s / _RENEWALS_PER_DURATION):
            asked = boottime_s()
            try:
                found = self._api.get(f"{self._collection}/{self._name}")
                if found is None or (found.get("spec") or {}).get("holderIdentity") != self._holder:
                    self._renewed_at = float("-inf")
                    return
                self._patch(found, {"renewTime": _micro(datetime.now(UTC))})
                self._renewed_at = asked
            except KubernetesError:
                continue

    def _patch(self, lease: dict[str, Any], spec: dict[str, Any]) -> None:
        patch = {"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}, "spec": spec}
        self._api.request("PATCH", f"{self._collection}/{self._name}", patch)

    def _spec(self) -> dict[str, Any]:
        now = _micro(datetime.now(UTC))
        duration = max(1, round(self._duration_s))
        return {"holderIdentity": self._holder, "leaseDurationSeconds": duration, "acquireTime": now, "renewTime": now}


def _micro(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
