"""A target that the cluster repairs: watch it from before the fault to the end of the chain, and keep hands off it.

Nothing here writes to the node. The game-day itself only takes the fault out and, for a fault that stays until its
deadline, puts it in again after a reboot; both are in the ledger, as for any other fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from gameday.cluster.custom_resources import list_call
from gameday.cluster.gpu_pods import GpuPod
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.list_watch import DELETED
from gameday.cluster.watch import Follower
from gameday.errors import AdapterError, LeaseHeldError, StepFailedError
from gameday.faults.optional import reach_of
from gameday.history.events import FaultInjected, RepairAwaited, SignalUnwatched
from gameday.ledger.entries import Entry, TakeOutFault
from gameday.ledger.lease import node_lease
from gameday.run.agents import inject_fault
from gameday.run.repair_signs import NodeState
from gameday.run.repair_watch import CORDON, RepairWatch
from gameday.run.run import Run
from gameday.run.successor import PoolWatch, pool_of
from gameday.run.targets import ChosenTarget, pool_labels
from gameday.values.results import Cleanliness

# Pause before a failed act is tried again, such as taking a fault out of a node that is down. Our own choice.
_ASK_AGAIN = timedelta(seconds=10)


class ClusterRepair:
    """A target that the cluster repairs. The run calls `look` in each of its waits."""

    def __init__(self, run: Run, target: ChosenTarget, pods_before: Collection[GpuPod]) -> None:
        """Follow the target's repair from now on, which must be before the fault.

        Args:
            run: The run, which follows the target.
            target: The target.
            pods_before: The GPU pods that run on it.

        Raises:
            AdapterError: A watch does not come up.
        """
        self.target = target
        self._run = run
        self._pods = [pod.uid for pod in pods_before]
        self._pool = pool_of(target.before.labels, pool_labels(run))
        self._pool_watch: PoolWatch | None = None
        self._fault_at = run.clock.now()
        self._booted_with_fault = target.before.boot_id
        self._times_put_in = 1
        self._asked_out_at: datetime | None = None
        self._act_after = datetime.min.replace(tzinfo=UTC)
        self._is_out = self._is_looking = False
        run.note(RepairAwaited(node=target.node))
        self.watch = RepairWatch(
            run.nodes.object(target.node), run.plan.recover, self._quarantine, self._work_has_moved, run.note, run.clock
        )
        run.nodes.add_listener(self.watch)
        self._follow_resources()

    def begin(self, written_at: datetime) -> None:
        """Count from the fault, which went in at `written_at` by the node's clock."""
        self._fault_at = written_at
        self.watch.begin(written_at)
        self._run.record.while_waiting(self.look)

    def look(self) -> None:
        """Look at bounds, pods and pool, and take the fault out or put it in again as the plan says.

        If the cluster does not answer, that becomes a problem in the history, and it is asked again a little later.
        """
        self.watch.look()
        if self._is_looking or self._run.clock.now() < self._act_after:
            return  # an injection waits, too
        self._is_looking = True
        try:
            if self.watch.awaits_successor:
                self._seek_successor()
            if self.watch.is_replaced and not self._run.nodes.follows(self.watch.name):
                self._follow_successor()
            self._move_fault()
        except (AdapterError, StepFailedError) as error:
            self._act_after = self._run.clock.now() + _ASK_AGAIN
            self._run.problem(f"{self.target.node}, which the cluster repairs: {error}")
        finally:
            self._is_looking = False

    def _quarantine(self, node: NodeState) -> str:
        wanted = {(one.key, one.value, str(one.effect)) for one in self._run.plan.expect.taints}
        found = sorted(wanted & node.taints)
        return f"taint {found[0][0]}" if found else CORDON if node.cordoned else ""

    def _work_has_moved(self) -> bool:
        pod_states = self._run.nodes.pod_states
        return all(pod_states.fate(uid).has_left for uid in self._pods)

    def _follow_resources(self) -> None:
        """Follow the custom resources that the signs name; if a watch is refused, their hops stay unknown."""
        signs = [sign for sign in self._run.plan.recover.hops.signs() if sign.resource]
        kinds = {(sign.resource.api_version, sign.resource.plural) for sign in signs if sign.resource}
        for api_version, plural in sorted(kinds):
            call = list_call(self._run.kubernetes.api, api_version, plural)
            follower = _resource_follower(self._run.kubernetes, call, self.watch.on_resource)
            follower.__enter__()
            self._run.background.callback(follower.stop)
            try:
                follower.require_synced()
            except AdapterError as error:
                why = f"{plural}.{api_version}: {error}"
                self._run.note(SignalUnwatched(node=self.target.node, signal="custom resources", why=why))

    def _seek_successor(self) -> None:
        """Look for the node that takes the target's place in its pool, and lock it for this run."""
        if self._pool_watch is None:
            self._pool_watch = PoolWatch(self._run.kubernetes, self._pool, self._fault_at)
            self._run.background.callback(self._pool_watch.stop)
        for node in self._pool_watch.candidates():
            if self._lock(node.metadata.name):
                self.watch.take_successor(node, self._pool)
                self._pool_watch.stop()
                return

    def _follow_successor(self) -> None:
        """Follow the node that took the target's place, as the target was followed."""
        seen = self._run.nodes.look_at(self.watch.name)
        if seen:
            self._run.nodes.follow_target(seen)

    def _lock(self, name: str) -> bool:
        """Take a node's lease; return False if another target or game-day has it."""
        run = self._run
        if run.nodes.follows(name) or name in run.excluded_nodes:
            return False
        try:
            run.leases.acquire(node_lease(name), run.plan.guardrails.max_duration)
        except LeaseHeldError:
            return False
        return True

    def _move_fault(self) -> None:
        watch, stays = self.watch, self._run.plan.recover.fault_out == "deadline"
        if self._is_out:
            return
        if watch.ended or watch.awaits_successor or watch.is_replaced or (watch.has_begun and not stays):
            self._take_out()
        elif stays and (boot := watch.boot_when_ready) and boot != self._booted_with_fault:
            self._put_in_again(boot)

    def _take_out(self) -> None:
        now = self._run.clock.now()
        if self._asked_out_at and (now - self._asked_out_at < _ASK_AGAIN or not self.watch.boot_when_ready):
            return
        recovery, hold = self._run.plan.recover, self._run.plan.fault.hold
        if self._asked_out_at is None and recovery.fault_out == "repair-begun" and now > self._fault_at + hold:
            self._run.problem(
                f"the fault came out of {self.target.node} at the end of its hold, before the repair began",
                "give the fault a longer hold: at least the bounds up to recover.hops.repair_begun",
            )
        self._asked_out_at = now
        undone = [self._run.undo(entry) for entry in self._faults()]
        self._is_out = all(cleanliness is Cleanliness.CLEAN for cleanliness in undone)

    def _faults(self) -> list[Entry]:
        entries = self._run.ledger.open_entries()
        return [entry for entry in entries if isinstance(entry.undo, TakeOutFault) and entry.node == self.target.node]

    def _put_in_again(self, boot_id: str) -> None:
        """Put the fault in again after a reboot, for the rest of its hold, because a broken GPU is still broken then.

        It must be faster than the cluster's own test of the node. The first fault's entry stays open until both faults
        are taken out, the newest first.
        """
        run, fault = self._run, self._run.plan.fault
        left = self._fault_at + fault.hold - run.clock.now()
        self._booted_with_fault = boot_id
        if left <= timedelta():
            return
        self._times_put_in += 1
        again = fault.model_copy(update={"hold": left})
        name = run.record.object_name(f"inject-{self._times_put_in}", self.target.index)
        entry, note = inject_fault(run, self.target, again, name)
        reach = reach_of(fault)
        run.note(
            FaultInjected(
                intent=entry.id,
                target=self.target.target,
                fault=fault.type,
                layer=reach.layer,
                written_at=note.written_at,
                evidence=note.evidence,
            )
        )


def _resource_follower(
    kubernetes: Kubernetes, call: Callable[..., Any], on_resource: Callable[[Mapping[str, Any]], None]
) -> Follower:
    """Return a watch that reports resources that are created or changed after its first state."""

    def changed(kind: str, resource: Mapping[str, Any]) -> None:
        if kind != DELETED and follower.wait_synced(0):
            on_resource(resource)

    follower = kubernetes.follow(call, changed, dict)
    return follower
