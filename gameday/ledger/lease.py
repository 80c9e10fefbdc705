"""Kubernetes Leases that allow one game-day per cluster and per node; held while a run lives.

Clocks of different machines are never compared. As in client-go, a holder is observed: if its lease does not change
within the lease's duration by the observer's own clock, the holder is dead. The times written in a lease can only make
us more careful.

A season holds the cluster's lease for all its runs. The runs hold only the leases of their nodes, and watch that their
season still holds its own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from gameday.clock import Repetition
from gameday.cluster.kube_errors import is_outcome_unknown
from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError, LeaseHeldError, LeaseLostError, RefusedError, SeasonGoneError

CLUSTER_LEASE = "gameday-cluster"
# A run that stops renewing counts as dead after this time. It renews twice in it, and five times as often after a
# failure, so that a restart of an API server costs no lease. Our own choice.
LEASE_DURATION = timedelta(seconds=30)
_RENEWALS_PER_DURATION = 2
_RETRIES_PER_DURATION = 10
# The share of a duration that is left when a renewal is due, minus the pause before the last retry.
_OUTAGE_PER_DURATION = 1 - 1 / _RENEWALS_PER_DURATION - 1 / _RETRIES_PER_DURATION
# How often an observer looks during a lease's duration: a living holder renews after half of it.
_LOOKS_PER_DURATION = 6
# No holder is observed for longer, even if its lease says so.
_LONGEST_OBSERVATION_S = 600.0
# Three attempts, to create, to take over, and to find the faster run, because each of the first two can lose a race.
_TRIES = 3
# A renewal in progress may finish before the lease is given back.
_LAST_RENEWAL_S = 2.0
_NOT_FOUND_STATUS = 404
_CONFLICT_STATUS = 409


def node_lease(node: str) -> str:
    """Return the name of a node's lease."""
    return f"gameday-node-{node}"


def lease_duration(usual_s: float, outage: timedelta = timedelta()) -> timedelta:
    """Return the duration of a lease if its holder itself stops writes to the API server for a time.

    Args:
        usual_s: The cluster profile's duration, in seconds.
        outage: The longest time without writes.
    """
    return timedelta(seconds=usual_s) + outage / _OUTAGE_PER_DURATION


def is_game_day_lease(name: str) -> bool:
    """Return True for a lease of a run; the namespace may hold others, such as a controller's."""
    return name == CLUSTER_LEASE or name.startswith(node_lease(""))


def is_covered_by(run_id: str, holder: str) -> bool:
    """Return True if the holder of the cluster lease is this run or its season; a run's id begins with its season's."""
    return run_id == holder or run_id.startswith(f"{holder}-")


def lease_refusal(held: LeaseHeldError) -> RefusedError:
    """Return the refusal for a lease that another run holds, with the command that helps."""
    return RefusedError(str(held), f"wait for run {held.holder}, or run `gameday reap` if it is dead")


class Leases:
    """The leases of one run, season or reaper.

    Every write names the version it was made from: a run that slept while another took its lease over must neither take
    it back nor give it away.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        holder: str,
        on_lost: Callable[[str], None],
        duration: timedelta = LEASE_DURATION,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """Hold nothing yet.

        Args:
            kubernetes: The cluster.
            holder: The id of the run, season or reaper.
            on_lost: Called once with the reason, from the renewing thread, when the cluster lease is lost.
            duration: After this long without a renewal the holder counts as dead.
            sleep: Waits this many seconds while another's lease is observed; its errors pass through. None: by the
                clock.
        """
        self._kubernetes = kubernetes
        self._clock = kubernetes.clock
        self._holder = holder
        self._on_lost = on_lost
        self._duration = duration
        self._sleep = sleep or self._clock.sleep
        self._renewed = self._clock.boottime()
        self._held: dict[str, Any] = {}
        self._sent: dict[str, str] = {}
        """The acquireTime last sent for each lease; it tells our own lease from that of a run with the same id."""
        self._season = ""
        self._observed: tuple[Any, ...] = ()
        self._lost_because = ""
        self._renewal: Repetition | None = None

    def acquire(self, name: str, duration: timedelta | None = None, *, always_observe: bool = False) -> None:
        """Take a lease that is free, or that a dead run holds.

        Only the cluster's lease can be taken over, after its holder was observed for the lease's whole duration. A
        node's lease is never renewed, so only the end of its run, or the reaper, frees it.

        Args:
            name: The lease.
            duration: The duration to write into it; None: the run's own.
            always_observe: Also observe a holder that seems alive by its own times, because its clock may be wrong.
                By default such a holder is believed.

        Raises:
            LeaseHeldError: Somebody holds it, possibly another run with the same id.
            KubernetesError: The lease cannot be read or written.
        """
        attempt = self._create
        for tries_left in reversed(range(_TRIES)):
            try:
                self._held[name] = attempt(name, duration or self._duration)
                return
            except KubernetesError as error:
                # A creation without an answer may have succeeded: the lease that is read next shows it.
                may_be_ours = attempt == self._create and is_outcome_unknown(error)
                if not tries_left or not (may_be_ours or error.status in (_NOT_FOUND_STATUS, _CONFLICT_STATUS)):
                    raise
                take_over = partial(self._take_over, always_observe=always_observe)
                attempt = self._create if error.status == _NOT_FOUND_STATUS else take_over

    def rely_on(self, season: str) -> None:
        """Rely on the season's cluster lease instead of taking one, and watch it until `release`.

        Raises:
            SeasonGoneError: The season does not hold it.
            KubernetesError: The lease cannot be read.
        """
        self._season = season
        if why := self._season_gone(self._clock.boottime()):
            raise SeasonGoneError(why)
        self.keep_renewing()

    def keep_renewing(self) -> None:
        """Renew the cluster lease in the background until `release`; a season's lease is only watched."""
        self._renewal = self._clock.repeat("lease", self._renew, self._regular_s)

    def check(self) -> None:
        """Raise LeaseLostError if another run may hold the cluster lease by now.

        The lease is lost, or was not renewed for its duration. This clock also counts while the machine sleeps, so this
        notices a long sleep before the renewing thread does.
        """
        if self._lost_because:
            raise LeaseLostError(self._lost_because)
        late = self._clock.boottime() - self._renewed
        if late >= self._duration.total_seconds():
            raise LeaseLostError(f"the cluster lease was not renewed for {late:.0f} s: another run may hold it")

    def release(self) -> None:
        """Give every lease back; a lease that cannot be reached expires by itself."""
        if self._renewal is not None:
            self._renewal.stop(_LAST_RENEWAL_S)
        for metadata in self._held.values():
            delete_lease(self._kubernetes, self._holder, metadata)
        self._held.clear()

    def _create(self, name: str, duration: timedelta) -> Any:
        spec = self._spec(name, duration)
        manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
        with self._kubernetes.explained(f"create lease {name}"):
            return self._kubernetes.coordination.create_namespaced_lease(
                self._kubernetes.profile.namespace, manifest
            ).metadata

    def _take_over(self, name: str, duration: timedelta, *, always_observe: bool) -> Any:
        lease = read_lease(self._kubernetes, name)
        held = as_held(lease)
        if held is not None and held.holder == self._holder and _micro(lease.spec.acquire_time) == self._sent.get(name):
            return lease.metadata
        if held is not None and (
            name != CLUSTER_LEASE
            or (_looks_alive(held, self._clock.now()) and not always_observe)
            or _is_seen_alive(self._kubernetes, lease, self._sleep)
        ):
            raise held
        return self._patch(f"take over lease {name}", lease.metadata, self._spec(name, duration))

    def _spec(self, name: str, duration: timedelta) -> dict[str, Any]:
        """Return a lease's spec as of now; call this right before the write, because an observation takes long."""
        if name == CLUSTER_LEASE:
            self._renewed = self._clock.boottime()
        now = self._sent[name] = _micro(self._clock.now())
        return {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": max(1, round(duration.total_seconds())),
            "acquireTime": now,
            "renewTime": now,
        }

    def _patch(self, act: str, metadata: Any, spec: dict[str, Any]) -> Any:
        patch = {"metadata": {"resourceVersion": metadata.resource_version}, "spec": spec}
        with self._kubernetes.explained(act):
            return self._kubernetes.coordination.patch_namespaced_lease(
                metadata.name,
                self._kubernetes.profile.namespace,
                patch,
                _content_type="application/merge-patch+json",
            ).metadata

    @property
    def _regular_s(self) -> float:
        """Seconds between two renewals; a season's lease is looked at more often than it is renewed."""
        return self._duration.total_seconds() / _RENEWALS_PER_DURATION / (2 if self._season else 1)

    def _renew(self) -> float | None:
        """Renew the lease, or look at the season's. Return the seconds until the next time; None once it is lost."""
        duration_s, pause_s = self._duration.total_seconds(), self._regular_s
        asked = self._clock.boottime()
        try:
            why = self._season_gone(asked) if self._season else self._renew_once()
            if not self._season:
                self._renewed = asked
        except KubernetesError as error:
            pause_s = duration_s / _RETRIES_PER_DURATION
            late = self._clock.boottime() - self._renewed >= duration_s
            act = "look at" if self._season else "renew"
            why = f"could not {act} the cluster lease for {duration_s:g} s: {error.cause}" if late else ""
        if not why:
            return pause_s
        self._lost_because = why
        self._on_lost(why)
        return None

    def _renew_once(self) -> str:
        """Renew the cluster lease; return why we no longer hold it, or an empty string.

        Raises:
            KubernetesError: The lease cannot be read or written.
        """
        spec = {"renewTime": _micro(self._clock.now())}
        act = f"renew lease {CLUSTER_LEASE}"
        try:
            self._held[CLUSTER_LEASE] = self._patch(act, self._held[CLUSTER_LEASE], spec)
        except KubernetesError as error:
            if error.status == _NOT_FOUND_STATUS:
                return "somebody deleted the cluster lease"
            if error.status != _CONFLICT_STATUS:
                raise
            lease = read_lease(self._kubernetes, CLUSTER_LEASE)
            if holder_of(lease) != self._holder:
                return f"run {holder_of(lease)} took the cluster lease over"
            self._held[CLUSTER_LEASE] = self._patch(act, lease.metadata, spec)
        return ""

    def _season_gone(self, asked: float) -> str:
        """Return why the season's cluster lease no longer covers us, or an empty string.

        A season is dead if its lease did not change for its duration by our clock.

        Args:
            asked: Start of this look, by `Clock.boottime`.

        Raises:
            KubernetesError: The lease cannot be read.
        """
        try:
            lease = read_lease(self._kubernetes, CLUSTER_LEASE)
        except KubernetesError as error:
            if error.status != _NOT_FOUND_STATUS:
                raise
            return f"season {self._season} holds no cluster lease: it has ended"
        if holder_of(lease) != self._season:
            return f"run {holder_of(lease)} holds the cluster lease of season {self._season}"
        if (renewal := _last_renewal(lease)) != self._observed:
            self._observed, self._renewed = renewal, asked
        dead = asked - self._renewed >= self._duration.total_seconds()
        return f"season {self._season} no longer renews its cluster lease: it is dead" if dead else ""


def read_lease(kubernetes: Kubernetes, name: str) -> Any:
    """Return the V1Lease. Raises KubernetesError; its status is 404 if there is none."""
    with kubernetes.explained(f"read lease {name}"):
        return kubernetes.coordination.read_namespaced_lease(name, kubernetes.profile.namespace)


def holder_of(lease: Any) -> str:
    """Return the holder of a lease (V1Lease); empty if nobody holds it, or it has no spec."""
    return (lease.spec.holder_identity if lease.spec else None) or ""


def as_held(lease: Any | None) -> LeaseHeldError | None:
    """Return the error that a lease (V1Lease) means to others than its holder; None if nobody holds it."""
    if lease is None or not (owner := holder_of(lease)):
        return None
    return LeaseHeldError(
        lease.metadata.name, owner, lease.spec.renew_time, timedelta(seconds=lease.spec.lease_duration_seconds or 0)
    )


def _looks_alive(held: LeaseHeldError, now: datetime) -> bool:
    """Return True if the holder seems alive by its own times: enough to refuse, but not to take over."""
    return held.renewed is not None and held.renewed + held.duration > now


def _is_seen_alive(kubernetes: Kubernetes, lease: Any, sleep: Callable[[float], object]) -> bool:
    """Observe a lease for its own duration by our clock.

    Returns:
        True as soon as its holder or its renewal changes; False if neither does, or nobody holds it any more.

    Raises:
        KubernetesError: The lease cannot be read; its status is 404 if it is gone.
    """
    name, seen = lease.metadata.name, _last_renewal(lease)
    duration_s = min(float(lease.spec.lease_duration_seconds or 0), _LONGEST_OBSERVATION_S)
    clock = kubernetes.clock
    deadline = clock.monotonic() + duration_s
    while True:
        left = deadline - clock.monotonic()
        sleep(max(0.0, min(left, duration_s / _LOOKS_PER_DURATION)))
        now = read_lease(kubernetes, name)
        if _last_renewal(now) != seen:
            return bool(holder_of(now))
        if left <= 0:
            return False


def _last_renewal(lease: Any) -> tuple[Any, ...]:
    """Return the fields that only holders write, which client-go compares, too."""
    times = (lease.spec.acquire_time, lease.spec.renew_time) if lease.spec else ()
    return (lease.metadata.uid, holder_of(lease), *times)


def delete_lease(kubernetes: Kubernetes, holder: str, metadata: Any) -> None:
    """Delete a lease if `holder` still holds it; a lease that cannot be reached is left to expire.

    A run that took it over kept its name and uid, so only the version tells the two apart.
    """
    try:
        try:
            _delete(kubernetes, metadata)
        except KubernetesError as error:
            if error.status != _CONFLICT_STATUS:
                raise
            lease = read_lease(kubernetes, metadata.name)
            if holder_of(lease) == holder:
                _delete(kubernetes, lease.metadata)
    except KubernetesError:
        return


def _delete(kubernetes: Kubernetes, metadata: Any) -> None:
    preconditions = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
    with kubernetes.explained(f"release lease {metadata.name}"):
        kubernetes.coordination.delete_namespaced_lease(
            metadata.name, kubernetes.profile.namespace, body={"preconditions": preconditions}
        )


def _micro(moment: datetime) -> str:
    """Return a MicroTime, never of a whole second: the client drops that fraction, and the API server demands it."""
    return moment.replace(microsecond=moment.microsecond or 1).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
