"""A Lease: one process holds and renews it, and the others observe whether that one lives.

Clocks of different machines are never compared. As in client-go, a holder is observed: if its lease does not change
within the lease's duration by the observer's own clock, the holder is dead. The times written in a lease can only make
us more careful.

Every write names the version it was made from: a process that slept while another took its lease over must neither
take it back nor give it away.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from gameday.clock import Clock, Repetition
from gameday.cluster.json_api import CONFLICT, NOT_FOUND, JsonApi
from gameday.errors import KubernetesError, LeaseHeldError, LeaseLostError

LONGEST_S = 600.0
"""No holder of ours asks for longer, and none is observed for longer, even if its lease says so."""
RETRIES_PER_DURATION = 10
"""A renewal that failed is soon tried again, so that a restart of an API server costs no lease. Our own choice."""
# A renewal in progress may finish before the lease is given back.
_LAST_RENEWAL_S = 2.0


class Lease:
    """A lease that one process takes and renews, or of which it watches the holder."""

    def __init__(self, api: JsonApi, name: str, holder: str, duration: timedelta, clock: Clock = Clock()) -> None:
        """Hold nothing yet.

        Args:
            api: The API server; the lease is in its namespace.
            name: The lease.
            holder: Who holds it: we ourselves, or whom we watch.
            duration: After this long without a renewal the holder counts as dead.
            clock: Our own clock.
        """
        self.found: dict[str, Any] | None = None
        """The lease as it was last read; None if there was none."""
        self.observed: tuple[Any, ...] = ()
        """What only holders write, as it was last read; client-go compares the same."""
        self._api, self._name, self._holder, self._clock = api, name, holder, clock
        self._duration_s = duration.total_seconds()
        self._observed_at = 0.0
        self._renewed_at = float("-inf")
        """Start of the last request that proved that the holder lives."""
        self._ours: dict[str, Any] | None = None
        """The lease as we last wrote it; None while we never held it."""
        self._sent: set[str] = set()
        """Every acquireTime that we sent; it tells our own lease from that of another holder of the same name."""
        self._lost_because = ""
        self._repetition: Repetition | None = None

    @property
    def is_held(self) -> bool:
        """True while no other process can have taken the lease over."""
        return self.seconds_left > 0

    @property
    def seconds_left(self) -> float:
        """Seconds until another process may take the lease over, unless it is renewed; 0 if it may now.

        They also pass while the machine sleeps, so a holder notices a long sleep at once.
        """
        return max(0.0, self._renewed_at + self._duration_s - self._clock.boottime())

    @property
    def seconds_until_dead(self) -> float:
        """Seconds after which the holder counts as dead, unless the lease changes; 0 if it does, or there is none."""
        if not holder_of(self.found):
            return 0.0
        lasts_s = min(float(_spec(self.found).get("leaseDurationSeconds") or self._duration_s), LONGEST_S)
        return max(0.0, self._observed_at + lasts_s - self._clock.boottime())

    def check(self) -> None:
        """Raise LeaseLostError if another process may hold the lease by now."""
        if self._lost_because:
            raise LeaseLostError(self._lost_because)
        if not self.is_held:
            late_s = self._clock.boottime() - self._renewed_at
            raise LeaseLostError(f"lease {self._name} was not renewed for {late_s:.0f} s: another process may hold it")

    def take(self) -> bool:
        """Look at the lease, and take it if nobody holds it or its holder was seen dead; return True if it is ours now.

        A holder is seen dead after looks over the lease's whole duration.

        Raises:
            KubernetesError: The lease cannot be read or written; its status is 404 or 409 for a lost race.
        """
        asked = self._clock.boottime()
        self._look()
        if not self._is_ours and self.seconds_until_dead > 0:
            return False
        now = _micro(self._clock.now())
        self._sent.add(now)
        duration_s = max(1, round(self._duration_s))
        times = {"leaseDurationSeconds": duration_s, "acquireTime": now, "renewTime": now}
        self._write("take over" if self.found else "create", {"holderIdentity": self._holder, **times})
        self._renewed_at, self._lost_because = asked, ""
        return True

    def try_take(self) -> bool:
        """Take the lease as `take` does; a lost race is no error."""
        try:
            return self.take()
        except KubernetesError as error:
            if error.status in (NOT_FOUND, CONFLICT):
                return False
            raise

    def renew(self) -> str:
        """Renew the lease; return why we hold it no more, or "". Raises KubernetesError."""
        asked, spec = self._clock.boottime(), {"renewTime": _micro(self._clock.now())}
        self.found = self._ours
        try:
            self._write("renew", spec)
        except KubernetesError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise
            self._look()
            if not self._is_ours:
                return self._loss
            self._write("renew", spec)
        self._renewed_at = asked
        return ""

    def watch(self) -> str:
        """Look whether the holder renews the lease; return why it holds it no more, or "". Raises KubernetesError."""
        asked, before = self._clock.boottime(), self.observed
        self._look()
        if holder_of(self.found) != self._holder:
            return self._loss
        if self.observed != before:
            self._renewed_at = asked
        return "" if self.is_held else f"{self._holder} no longer renews lease {self._name}: it is dead"

    def keep_renewing(self, per_duration: int = 5, on_lost: Callable[[str], object] = lambda _: None) -> None:
        """Renew the lease in the background until `release`, or until it is lost; another's is only watched.

        Args:
            per_duration: So many times within its duration.
            on_lost: Called once with the reason, from the renewing thread, when the lease is lost.
        """
        if self._repetition is not None:
            self._repetition.stop()  # an outage has cost the lease, and it was taken again
        act, pause_s = self.renew if self._ours else self.watch, self._duration_s / per_duration
        turn = partial(self._turn, act, pause_s, on_lost)
        self._repetition = self._clock.repeat(f"lease {self._name}", turn, pause_s)

    def release(self) -> None:
        """Give the lease back; one that cannot be reached expires by itself."""
        if self._repetition is not None:
            self._repetition.stop(_LAST_RENEWAL_S)
        self._renewed_at = float("-inf")
        if self._ours is not None:
            delete_lease(self._api, self._ours)
            self._ours = None

    def _turn(self, act: Callable[[], str], pause_s: float, on_lost: Callable[[str], object]) -> float | None:
        """Return the seconds until the next turn, or None once the lease is lost."""
        try:
            why = act()
        except KubernetesError as error:
            if self.is_held:
                return self._duration_s / RETRIES_PER_DURATION
            why = f"no success for {self._duration_s:g} s: {error.cause}"
        if not why:
            return pause_s
        self._lost_because, self._renewed_at = why, float("-inf")
        on_lost(why)
        return None

    def _look(self) -> None:
        self.found = read_lease(self._api, self._name)
        spec, uid = _spec(self.found), (self.found or {}).get("metadata", {}).get("uid")
        seen = (uid, holder_of(self.found), spec.get("acquireTime"), spec.get("renewTime"))
        if seen != self.observed:
            self.observed, self._observed_at = seen, self._clock.boottime()

    @property
    def _is_ours(self) -> bool:
        return holder_of(self.found) == self._holder and _spec(self.found).get("acquireTime") in self._sent

    @property
    def _loss(self) -> str:
        return f"{self._holder} no longer holds lease {self._name}: {holder_of(self.found) or 'nobody'} does"

    def _write(self, act: str, spec: dict[str, Any]) -> None:
        """Create the lease, or change it if it is still as it was found."""
        collection, act = leases_path(self._api), f"{act} lease {self._name}"
        if self.found is None:
            body = {"metadata": {"name": self._name}, "spec": spec}
            self._ours = self._api.request("POST", collection, body, act=act)
        else:
            patch = {"metadata": {"resourceVersion": self.found["metadata"]["resourceVersion"]}, "spec": spec}
            self._ours = self._api.request("PATCH", f"{collection}/{self._name}", patch, act=act)


def leases_path(api: JsonApi) -> str:
    """Return the URL's path of the leases."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"


def read_lease(api: JsonApi, name: str) -> dict[str, Any] | None:
    """Return a lease, or None if there is none. Raises KubernetesError."""
    return api.get(f"{leases_path(api)}/{name}", act=f"read lease {name}")


def holder_of(lease: dict[str, Any] | None) -> str:
    """Return the holder of a lease; empty if nobody holds it, or there is none."""
    return _spec(lease).get("holderIdentity") or ""


def as_held(lease: dict[str, Any] | None) -> LeaseHeldError | None:
    """Return the error that a lease means to others than its holder; None if nobody holds it."""
    if lease is None or not (holder := holder_of(lease)):
        return None
    spec = _spec(lease)
    renewed = datetime.fromisoformat(spec["renewTime"]) if spec.get("renewTime") else None
    lasts = timedelta(seconds=spec.get("leaseDurationSeconds") or 0)
    return LeaseHeldError(lease["metadata"]["name"], holder, renewed, lasts)


def delete_lease(api: JsonApi, lease: dict[str, Any]) -> None:
    """Delete a lease if its holder still holds it; one that cannot be reached is left to expire.

    Who took it over kept its name and uid, so only the version tells the two apart.
    """
    with suppress(KubernetesError):
        try:
            _delete(api, lease)
        except KubernetesError as error:
            now = read_lease(api, lease["metadata"]["name"]) if error.status == CONFLICT else None
            if now and (holder_of(now), _spec(now).get("acquireTime")) == (
                holder_of(lease),
                _spec(lease).get("acquireTime"),
            ):
                _delete(api, now)


def _delete(api: JsonApi, lease: dict[str, Any]) -> None:
    name = lease["metadata"]["name"]
    preconditions = {key: lease["metadata"][key] for key in ("uid", "resourceVersion")}
    api.request("DELETE", f"{leases_path(api)}/{name}", {"preconditions": preconditions}, act=f"release lease {name}")


def _spec(lease: dict[str, Any] | None) -> dict[str, Any]:
    return (lease or {}).get("spec") or {}


def _micro(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
