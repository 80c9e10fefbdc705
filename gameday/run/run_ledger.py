"""A run's mutations: each is intended in the ledger and the history, done, undone, verified and settled."""

from __future__ import annotations

from datetime import timedelta

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.pods import PodFollower
from gameday.errors import AdapterError, LeaseLostError
from gameday.history.events import FaultUndone, IntentRecorded
from gameday.ledger.entries import Entry, RestoreNode, Undo
from gameday.ledger.lease import Leases
from gameday.ledger.ledger import Ledger
from gameday.ledger.undo import undo_entry
from gameday.run.node_watch import NodeWatch
from gameday.run.record import RunRecord
from gameday.run.unheard_fault import unheard_fault
from gameday.values.results import Cleanliness

# An entry expires this long after its fault's own deadline, so that the agent has time to act first.
EXPIRY_MARGIN = timedelta(seconds=30)


class RunLedger:
    """The ledger of a live run; every change of it is noted in the run's history."""

    def __init__(
        self,
        record: RunRecord,
        kubernetes: Kubernetes,
        stored: Ledger,
        leases: Leases,
        pods: PodFollower,
    ) -> None:
        self._record = record
        self._kubernetes = kubernetes
        self._leases = leases
        self._pods = pods
        self.stored = stored

    def intend(
        self,
        id: str,
        act: str,
        undo: Undo,
        node: str | None,
        duration: timedelta,
        *,
        defer_write: bool = False,
    ) -> Entry:
        """Write intent and undo into the ledger and the history; only then may the act be done.

        Args:
            id: The entry's name, unique in the run.
            act: The intended act, in words.
            undo: How to undo it.
            node: The node it is done on; None if it is on no node.
            duration: How long it should last; the entry expires soon after.
            defer_write: Write it together with the next intent, which causes this one.

        Raises:
            KubernetesError: The ledger cannot be written.
            AbortedError: A stop was requested, or another run may hold the cluster by now.
        """
        expires, ahead = self._record.clock.now() + duration + EXPIRY_MARGIN, self.stored.find_open(id, undo)
        entry = self.stored.intend(id=id, act=act, node=node, undo=undo, expires=expires, defer_write=defer_write)
        if ahead is None:
            about = {"object": entry.object, "node": node, "expires": entry.expires}
            self._record.note(IntentRecorded(intent=id, act=act, undo=undo.kind, **about))
        # The process may have slept: another holder of the lease may have reaped this intent.
        self.check_lease()
        return entry

    def check_lease(self) -> None:
        """Raise AbortedError if a stop was requested, or another run may hold the cluster by now."""
        abort = self._record.abort
        if abort.requested is None:
            try:
                self._leases.check()
            except LeaseLostError as error:
                abort.request("guard", str(error))
        abort.check()

    def undo(self, entry: Entry, nodes: NodeWatch) -> Cleanliness:
        """Undo one entry, verify it by reading, and write down the result.

        Args:
            entry: The entry to undo.
            nodes: Knows the entry's node, which saves a read before the write.

        Returns:
            The state that was read back; UNKNOWN if the cluster does not answer, which raises nothing.
        """
        done = undo_entry(
            self._kubernetes,
            entry,
            self._record.id,
            self._pods,
            nodes.object(entry.node) if entry.node else None,
            ledger=self.stored,
            after_signal=self._record.abort.by_operator,
        )
        if fault := unheard_fault(self._record.journal.history(), entry, done.injector):
            self._record.note(fault)
        went_in = done.injector.went_in if done.injector else None
        self.settle(entry, done.cleanliness, done.evidence, by_deadline=done.by_deadline, went_in=went_in)
        return done.cleanliness

    def settle(
        self,
        entry: Entry,
        cleanliness: Cleanliness,
        evidence: tuple[str, ...],
        *,
        by_deadline: bool = False,
        went_in: bool | None = None,
    ) -> None:
        """Write down how an entry ended, in the history and in the ledger.

        Args:
            entry: The entry that was undone, or is kept on purpose.
            cleanliness: What reading back showed.
            evidence: The lines that prove it.
            by_deadline: The agent's own deadline ended the fault, not this run.
            went_in: True if the fault went in, by its injector's report; None: not known, or there is no fault.
        """
        by, what = "deadline" if by_deadline else "flow", {"intent": entry.id, "node": entry.node, "went_in": went_in}
        self._record.note(FaultUndone(by=by, cleanliness=cleanliness, evidence=evidence, **what))
        try:
            self.stored.settle(entry, cleanliness, by, evidence)
        except AdapterError as error:
            self._record.problem(
                f"the ledger still lists {entry.id} as open: {error}", "run `gameday reap` when it is back"
            )

    def update_undo(self, entry: Entry, undo: Undo) -> None:
        """Write immediately what the undo of a finished act needs to know. Raises KubernetesError."""
        self.stored.update_undo(entry, undo)

    def open_entries(self) -> list[Entry]:
        """Return the entries that are not proved undone, newest first."""
        return self.stored.open_entries()

    def quarantines_of(self, node: str) -> list[Entry]:
        """Return the open entries that return a node to service."""
        return [entry for entry in self.open_entries() if isinstance(entry.undo, RestoreNode) and entry.node == node]

    def cordons(self, node: str) -> bool:
        """Return True if this run lifts, or has lifted, a cordon of the node: the detector's or its own."""
        return self.stored.cordons(node)

    def restorations_of(self, node: str) -> list[Entry]:
        """Return the entries that returned the node to service, once reading has shown it."""
        return self.stored.restorations_of(node)

    def fault_on(self, node: str | None) -> Cleanliness:
        """Return the known state of a node's faults: CLEAN once each was read back as out."""
        return self.stored.fault_on(node)
