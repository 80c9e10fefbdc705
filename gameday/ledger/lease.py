"""One game-day per cluster and per node: Kubernetes Leases, held while a run lives.

Nobody's clock is compared with anybody else's. Whether a holder lives is
observed, as client-go does it: its lease changes within the lease's duration
by the observer's own clock, or the holder is dead. What the times in a lease
say only ever makes us more careful, never less.

A season holds the cluster's lease for all its runs, which hold those of their
nodes only and look that their season still has its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError, LeaseHeldError, LeaseLostError, SeasonGoneError

CLUSTER_LEASE = "gameday-cluster"
# A run that stops renewing is taken for dead after this; it renews twice in it, and after a failure five times as
# often, so that an API server that restarts costs no lease.
LEASE_DURATION = timedelta(seconds=30)
# An observer looks this often while a lease's duration passes: a living holder is seen to renew after half of it.
_LOOKS = 6
# Nobody is watched for longer, whatever a lease that somebody else wrote says.
_LONGEST_S = 600.0
_RENEWALS = 2
_RENEWALS_AFTER_FAILURE = 10
# Create, take over, meet the run that was faster: each of the first two can lose a race.
_TRIES = 3
# A renewal that is under way is let through before the lease is given back.
_LAST_RENEWAL_S = 2.0


def node_lease(node: str) -> str:
    return f"gameday-node-{node}"


def is_ours(lease: str) -> bool:
    """Whether a lease of this name is one of a run; the namespace may hold others, a controller's say."""
    return lease == CLUSTER_LEASE or lease.startswith(node_lease(""))


def lives_under(run_id: str, holder: str) -> bool:
    """Whether the holder of the cluster lease is this run, or the season whose run it is: those are named after it."""
    return run_id == holder or run_id.startswith(f"{holder}-")


class Leases:
    """The leases of one run, season or reaper; `lost` is called once, from the renewing thread, when the cluster lease
    is gone.

    Every write names the version it was made from: a run that was asleep while
    another took its lease over must neither take it back nor give it away.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        holder: str,
        lost: Callable[[str], None],
        duration: timedelta = LEASE_DURATION,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """`pause` waits so many seconds while another's lease is observed; what it raises ends that."""
        self._kubernetes = kubernetes
        self._holder = holder
        self._lost = lost
        self._duration = duration
        self._pause = pause
        self._renewed = boottime_s()
        self._held: dict[str, Any] = {}
        self._season = ""
        self._observed: tuple[Any, ...] = ()
        self._gone = ""
        self._patient = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, name: str, duration: timedelta | None = None, *, patient: bool = False) -> None:
        """Take a lease that is free, or whose holder is dead; raises LeaseHeldError for any other, one of the same run
        id included: that is another run that began in the same second.

        Only the cluster's lease can be taken over, after its holder was observed for the lease's whole duration: a
        node's is never renewed, so that nothing but the end of its run, or the reaper, makes it free. A holder whose
        own times say that it lives is not observed but believed, unless `patient`: its clock may be wrong.
        """
        self._patient = patient
        attempt = self._create
        for tries_left in reversed(range(_TRIES)):
            try:
                self._held[name] = attempt(name, duration or self._duration)
                return
            except KubernetesError as error:
                if not tries_left or error.status not in (404, 409):
                    raise
                attempt = self._take_over if error.status == 409 else self._create

    def rely_on(self, season: str) -> None:
        """Let the season's cluster lease cover this run, in place of one of its own, and look after it until `release`.

        Raises SeasonGoneError where the season does not hold it.
        """
        self._season = season
        if why := self._season_gone(boottime_s()):
            raise SeasonGoneError(why)
        self.keep_renewing()

    def keep_renewing(self) -> None:
        """Renew the cluster lease in the background until `release`; that of a season is only looked at."""
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise LeaseLostError where the cluster lease is gone, or was not renewed for its duration, by a clock that
        runs on while the machine sleeps: somebody else may hold it by now, and the renewing thread has yet to learn
        that."""
        if self._gone:
            raise LeaseLostError(self._gone)
        late = boottime_s() - self._renewed
        if late >= self._duration.total_seconds():
            raise LeaseLostError(f"the cluster lease was not renewed for {late:.0f} s: another run may hold it")

    def release(self) -> None:
        """Give back what is held; a lease that cannot be reached expires by itself."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_LAST_RENEWAL_S)
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

    def _take_over(self, name: str, duration: timedelta) -> Any:
        lease = read_lease(self._kubernetes, name)
        held = holder_of(lease)
        if held is not None and (
            name != CLUSTER_LEASE
            or (_looks_alive(held) and not self._patient)
            or _renews(self._kubernetes, lease, self._pause)
        ):
            raise held
        return self._patch(f"take over lease {name}", lease.metadata, self._spec(name, duration))

    def _spec(self, name: str, duration: timedelta) -> dict[str, Any]:
        """Made right before it is written: observing the holder before may have taken a lease's whole duration."""
        if name == CLUSTER_LEASE:
            self._renewed = boottime_s()
        now = _micro(datetime.now(UTC))
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

    def _renew(self) -> None:
        duration_s = self._duration.total_seconds()
        # Whoever looks at a season's renewals must look more often than they come.
        regular = pause = duration_s / _RENEWALS / (2 if self._season else 1)
        while not self._stop.wait(pause):
            asked = boottime_s()
            try:
                why = self._season_gone(asked) if self._season else self._renew_once()
                if not self._season:
                    self._renewed = asked
                pause = regular
            except KubernetesError as error:
                pause = duration_s / _RENEWALS_AFTER_FAILURE
                late = boottime_s() - self._renewed >= duration_s
                act = "look at" if self._season else "renew"
                why = f"could not {act} the cluster lease for {duration_s:g} s: {error.cause}" if late else ""
            if why:
                self._gone = why
                self._lost(why)
                return

    def _renew_once(self) -> str:
        """Empty, or why the cluster lease is ours no more. Raises KubernetesError when it cannot be told."""
        spec = {"renewTime": _micro(datetime.now(UTC))}
        act = f"renew lease {CLUSTER_LEASE}"
        try:
            self._held[CLUSTER_LEASE] = self._patch(act, self._held[CLUSTER_LEASE], spec)
        except KubernetesError as error:
            if error.status == 404:
                return "somebody deleted the cluster lease"
            if error.status != 409:
                raise
            lease = read_lease(self._kubernetes, CLUSTER_LEASE)
            if lease.spec.holder_identity != self._holder:
                return f"run {lease.spec.holder_identity} took the cluster lease over"
            self._held[CLUSTER_LEASE] = self._patch(act, lease.metadata, spec)
        return ""

    def _season_gone(self, asked: float) -> str:
        """Empty, or why the season's cluster lease covers us no more. Raises KubernetesError when it cannot be told.

        It lives as long as its lease changes: one that does not for its duration, by our clock, is dead.
        """
        try:
            lease = read_lease(self._kubernetes, CLUSTER_LEASE)
        except KubernetesError as error:
            if error.status != 404:
                raise
            return f"season {self._season} holds no cluster lease: it has ended"
        if lease.spec.holder_identity != self._season:
            return f"run {lease.spec.holder_identity} holds the cluster lease of season {self._season}"
        if (record := _record(lease)) != self._observed:
            self._observed, self._renewed = record, asked
        dead = asked - self._renewed >= self._duration.total_seconds()
        return f"season {self._season} renews its cluster lease no more: it is dead" if dead else ""


def read_lease(kubernetes: Kubernetes, name: str) -> Any:
    with kubernetes.explained(f"read lease {name}"):
        return kubernetes.coordination.read_namespaced_lease(name, kubernetes.profile.namespace)


def holder_of(lease: Any | None) -> LeaseHeldError | None:
    """The refusal this lease means for everybody but its holder; None where there is no lease, or nobody holds it."""
    owner = lease.spec.holder_identity if lease is not None else None
    if lease is None or not owner:
        return None
    return LeaseHeldError(
        lease.metadata.name, owner, lease.spec.renew_time, timedelta(seconds=lease.spec.lease_duration_seconds or 0)
    )


def _looks_alive(held: LeaseHeldError) -> bool:
    """Whether the holder's own times say that it lives: reason enough to refuse at once, and never to take over."""
    return held.renewed is not None and held.renewed + held.duration > datetime.now(UTC)


def _renews(kubernetes: Kubernetes, lease: Any, pause: Callable[[float], object]) -> bool:
    """Watch a lease for its own duration, by our clock: True as soon as its holder or its renewal changes, False when
    nothing does, or when it goes. Raises KubernetesError for a server that does not say.
    """
    name, seen = lease.metadata.name, _record(lease)
    duration_s = min(float(lease.spec.lease_duration_seconds or 0), _LONGEST_S)
    deadline = time.monotonic() + duration_s
    while True:
        left = deadline - time.monotonic()
        pause(max(0.0, min(left, duration_s / _LOOKS)))
        try:
            now = read_lease(kubernetes, name)
        except KubernetesError as error:
            if error.status == 404:
                return False
            raise
        if _record(now) != seen:
            return now.spec.holder_identity is not None
        if left <= 0:
            return False


def _record(lease: Any) -> tuple[Any, ...]:
    """What client-go compares: the holder's own words, and not whatever else is written on the object."""
    return (lease.metadata.uid, lease.spec.holder_identity, lease.spec.acquire_time, lease.spec.renew_time)


def boottime_s() -> float:
    """Return seconds of a monotonic clock that goes on while the machine sleeps, where the system has one (Linux)."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def delete_lease(kubernetes: Kubernetes, holder: str, metadata: Any) -> None:
    """Delete a lease as long as `holder` holds it: a run that took it over keeps its name and uid, so only the
    version tells them apart. What cannot be reached is left to expire."""
    try:
        try:
            _delete(kubernetes, metadata)
        except KubernetesError as error:
            if error.status != 409:
                raise
            lease = read_lease(kubernetes, metadata.name)
            if lease.spec.holder_identity == holder:
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
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
