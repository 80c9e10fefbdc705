"""One game-day per cluster and per node: Kubernetes Leases, held while a run lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from gameday.cluster.kubernetes import Kubernetes, KubernetesError

CLUSTER_LEASE = "gameday-cluster"
# A run that stops renewing is taken for dead after this; it renews twice in it, and after a failure five times as
# often, so that an API server that restarts costs no lease.
LEASE_DURATION = timedelta(seconds=30)
_RENEWALS = 2
_RENEWALS_AFTER_FAILURE = 10
# Create, take over, meet the run that was faster: each of the first two can lose a race.
_TRIES = 3
# A renewal that is under way is let through before the lease is given back.
_LAST_RENEWAL_S = 2.0


def node_lease(node: str) -> str:
    return f"gameday-node-{node}"


class LeaseHeldError(Exception):
    """Somebody else's run holds the lease; `holder` is its run id."""

    def __init__(self, lease: str, holder: str, renewed: datetime | None, duration: timedelta) -> None:
        since = f", renewed {renewed:%H:%M:%S} UTC, good for {duration.total_seconds():g} s" if renewed else ""
        super().__init__(f"lease {lease} is held by run {holder}{since}")
        self.lease = lease
        self.holder = holder
        self.renewed = renewed
        self.duration = duration

    def expires(self) -> datetime:
        return (self.renewed or datetime.now(UTC)) + self.duration


class Leases:
    """The leases of one run; `lost` is called once, from the renewing thread, when the cluster lease is gone.

    Every write names the version it was made from: a run that was asleep while
    another took its lease over must neither take it back nor give it away.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        holder: str,
        lost: Callable[[str], None],
        duration: timedelta = LEASE_DURATION,
    ) -> None:
        self._kubernetes = kubernetes
        self._holder = holder
        self._lost = lost
        self._duration = duration
        self._held: dict[str, Any] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, name: str, duration: timedelta | None = None) -> None:
        """Take a free or expired lease; raises LeaseHeldError for a live one, one of the same run id included: that
        is another run that began in the same second."""
        spec = _spec(self._holder, duration or self._duration)
        attempt = self._create
        for tries_left in reversed(range(_TRIES)):
            try:
                self._held[name] = attempt(name, spec)
                return
            except KubernetesError as error:
                if not tries_left or error.status not in (404, 409):
                    raise
                attempt = self._take_over if error.status == 409 else self._create

    def keep_renewing(self) -> None:
        """Renew the cluster lease in the background until `release`."""
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Give back what is held; a lease that cannot be reached expires by itself."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_LAST_RENEWAL_S)
        for metadata in self._held.values():
            delete_lease(self._kubernetes, self._holder, metadata)
        self._held.clear()

    def _create(self, name: str, spec: dict[str, Any]) -> Any:
        manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
        with self._kubernetes.explained(f"create lease {name}"):
            return self._kubernetes.coordination.create_namespaced_lease(
                self._kubernetes.profile.namespace, manifest
            ).metadata

    def _take_over(self, name: str, spec: dict[str, Any]) -> Any:
        lease = read_lease(self._kubernetes, name)
        held = live_holder(lease)
        if held is not None:
            raise held
        return self._patch(f"take over lease {name}", lease.metadata, spec)

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
        renewed, pause = time.monotonic(), duration_s / _RENEWALS
        while not self._stop.wait(pause):
            asked = time.monotonic()
            try:
                why = self._renew_once()
                renewed, pause = asked, duration_s / _RENEWALS
            except KubernetesError as error:
                pause = duration_s / _RENEWALS_AFTER_FAILURE
                late = time.monotonic() - renewed >= duration_s
                why = f"could not renew the cluster lease for {duration_s:g} s: {error.cause}" if late else ""
            if why:
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


def read_lease(kubernetes: Kubernetes, name: str) -> Any:
    with kubernetes.explained(f"read lease {name}"):
        return kubernetes.coordination.read_namespaced_lease(name, kubernetes.profile.namespace)


def live_holder(lease: Any | None) -> LeaseHeldError | None:
    """The refusal this lease means for everybody but its holder, or None when there is none, or it is expired."""
    owner = lease.spec.holder_identity if lease is not None else None
    if lease is None or not owner:
        return None
    held = LeaseHeldError(
        lease.metadata.name, owner, lease.spec.renew_time, timedelta(seconds=lease.spec.lease_duration_seconds or 0)
    )
    return held if held.expires() > datetime.now(UTC) else None


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


def _spec(holder: str, duration: timedelta) -> dict[str, Any]:
    now = _micro(datetime.now(UTC))
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": max(1, round(duration.total_seconds())),
        "acquireTime": now,
        "renewTime": now,
    }
