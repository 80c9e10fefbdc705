"""One game-day per cluster and per node: Kubernetes Leases, held while a run lives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from gameday.cluster.kubernetes import Kubernetes, KubernetesError

CLUSTER_LEASE = "gameday-cluster"
# A run that stops renewing is taken for dead after this; it renews twice in it.
LEASE_DURATION = timedelta(seconds=30)
_RENEWALS = 2


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
    """The leases of one run; `lost` is called once, from the renewing thread, when the cluster lease is gone."""

    def __init__(self, kubernetes: Kubernetes, holder: str, lost: Callable[[str], None]) -> None:
        self._kubernetes = kubernetes
        self._holder = holder
        self._lost = lost
        self._held: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, name: str, duration: timedelta = LEASE_DURATION) -> None:
        """Take a free or expired lease; raises LeaseHeldError for a live one."""
        kubernetes, namespace = self._kubernetes, self._kubernetes.profile.namespace
        spec = _spec(self._holder, duration)
        manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
        try:
            with kubernetes.explained(f"create lease {name}"):
                lease = kubernetes.coordination.create_namespaced_lease(namespace, manifest)
        except KubernetesError as error:
            if error.status != 409:
                raise
            lease = self._take_over(name, spec)
        self._held[name] = lease.metadata.uid

    def keep_renewing(self) -> None:
        """Renew the cluster lease in the background until `release`."""
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Give back what is held; a lease that cannot be reached expires by itself."""
        self._stop.set()
        for name, uid in self._held.items():
            delete_lease(self._kubernetes, name, uid)
        self._held.clear()

    def _take_over(self, name: str, spec: dict[str, Any]) -> Any:
        kubernetes, namespace = self._kubernetes, self._kubernetes.profile.namespace
        with kubernetes.explained(f"read lease {name}"):
            lease = kubernetes.coordination.read_namespaced_lease(name, namespace)
        held = held_by_other(lease, self._holder)
        if held is not None:
            raise held
        patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        with kubernetes.explained(f"take over lease {name}"):
            return kubernetes.coordination.patch_namespaced_lease(
                name, namespace, patch, _content_type="application/merge-patch+json"
            )

    def _renew(self) -> None:
        kubernetes, namespace = self._kubernetes, self._kubernetes.profile.namespace
        renewed = datetime.now(UTC)
        while not self._stop.wait(LEASE_DURATION.total_seconds() / _RENEWALS):
            try:
                with kubernetes.explained(f"renew lease {CLUSTER_LEASE}"):
                    kubernetes.coordination.patch_namespaced_lease(
                        CLUSTER_LEASE,
                        namespace,
                        {"spec": {"renewTime": _micro(datetime.now(UTC)), "holderIdentity": self._holder}},
                        _content_type="application/merge-patch+json",
                    )
                renewed = datetime.now(UTC)
            except KubernetesError as error:
                if datetime.now(UTC) - renewed > LEASE_DURATION:
                    self._lost(
                        f"could not renew the cluster lease for {LEASE_DURATION.total_seconds():g} s: {error.cause}"
                    )
                    return


def held_by_other(lease: Any, holder: str) -> LeaseHeldError | None:
    """The refusal this lease means for `holder`, or None when it is free, ours or expired."""
    owner = lease.spec.holder_identity
    if not owner or owner == holder:
        return None
    held = LeaseHeldError(
        lease.metadata.name, owner, lease.spec.renew_time, timedelta(seconds=lease.spec.lease_duration_seconds or 0)
    )
    return held if held.expires() > datetime.now(UTC) else None


def delete_lease(kubernetes: Kubernetes, name: str, uid: str) -> None:
    """Delete this very lease, not one that somebody else made since; what cannot be reached is left to expire."""
    try:
        with kubernetes.explained(f"release lease {name}"):
            kubernetes.coordination.delete_namespaced_lease(
                name, kubernetes.profile.namespace, body={"preconditions": {"uid": uid}}
            )
    except KubernetesError:
        return


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
