"""Leases that allow one game-day per cluster and per node; held while a run lives.

A season holds the cluster's lease for all its runs. The runs hold only the leases of their nodes, and watch that their
season still holds its own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from gameday.cluster.json_api import CONFLICT, NOT_FOUND
from gameday.cluster.kube_errors import is_outcome_unknown
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.lease import RETRIES_PER_DURATION, Lease, as_held, read_lease
from gameday.errors import KubernetesError, LeaseHeldError, RefusedError, SeasonGoneError

CLUSTER_LEASE = "gameday-cluster"
LEASE_DURATION = timedelta(seconds=30)
"""A run that stops renewing counts as dead after this time. Our own choice, like its parts below."""
_RENEWALS_PER_DURATION = 2
# A run looks at its season's lease more often than that is renewed.
_WATCHES_PER_DURATION = 4
# The share of a duration that is left when a renewal is due, minus the pause before the last retry.
_OUTAGE_PER_DURATION = 1 - 1 / _RENEWALS_PER_DURATION - 1 / RETRIES_PER_DURATION
# How often an observer looks during a lease's duration: a living holder renews after half of it.
_LOOKS_PER_DURATION = 6


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


def held_lease(kubernetes: Kubernetes, name: str) -> LeaseHeldError | None:
    """Return who holds a lease; None if nobody does. Raises KubernetesError."""
    return as_held(read_lease(kubernetes.json, name))


class Leases:
    """The leases of one run, season or reaper."""

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
        self._leases: dict[str, Lease] = {}

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
        lease = self._lease(name, self._holder, duration)
        try:
            self._take(name, lease, always_observe=always_observe)
        except KubernetesError as error:
            # A creation without an answer may have succeeded, and a lost race has a winner: the next look shows it.
            is_unknown = lease.found is None and is_outcome_unknown(error)
            if not is_unknown and error.status not in (NOT_FOUND, CONFLICT):
                raise
            self._take(name, lease, always_observe=always_observe)
        self._leases[name] = lease

    def rely_on(self, season: str) -> None:
        """Rely on the season's cluster lease instead of taking one, and watch it until `release`.

        Raises:
            SeasonGoneError: The season does not hold it.
            KubernetesError: The lease cannot be read.
        """
        lease = self._leases[CLUSTER_LEASE] = self._lease(CLUSTER_LEASE, season)
        if why := lease.watch():
            raise SeasonGoneError(why)
        lease.keep_renewing(_WATCHES_PER_DURATION, self._on_lost)

    def keep_renewing(self) -> None:
        """Renew the cluster lease in the background until `release`."""
        self._leases[CLUSTER_LEASE].keep_renewing(_RENEWALS_PER_DURATION, self._on_lost)

    def check(self) -> None:
        """Raise LeaseLostError if another run may hold the cluster lease by now."""
        if CLUSTER_LEASE in self._leases:
            self._leases[CLUSTER_LEASE].check()

    def release(self) -> None:
        """Give every lease back; a lease that cannot be reached expires by itself."""
        for lease in reversed(self._leases.values()):
            lease.release()

    def _lease(self, name: str, holder: str, duration: timedelta | None = None) -> Lease:
        return Lease(self._kubernetes.json, name, holder, duration or self._duration, self._clock)

    def _take(self, name: str, lease: Lease, *, always_observe: bool) -> None:
        first, pause_s = None, 0.0
        while not lease.take():
            held = as_held(lease.found)
            assert held
            seems_alive = held.renewed is not None and held.renewed + held.duration > self._clock.now()
            is_believed = name != CLUSTER_LEASE or (seems_alive and not always_observe)
            if is_believed or (first is not None and lease.observed != first):
                raise held
            if first is None:
                first, pause_s = lease.observed, lease.seconds_until_dead / _LOOKS_PER_DURATION
            self._sleep(min(lease.seconds_until_dead, pause_s))
