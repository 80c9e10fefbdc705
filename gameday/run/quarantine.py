"""Distinguish the detector's quarantine of a target from ours and a stranger's; keep a bad node out of service."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from gameday.cluster.nodes import REASON_ANNOTATION
from gameday.history.events import CordonSeen, KubernetesEventSeen, LeftToOwner, NodeSeen, TaintSeen
from gameday.ledger.entries import RestoreNode
from gameday.run.detection_chain import DetectionChain
from gameday.run.node_watch import NodeListener
from gameday.run.record import RunRecord
from gameday.run.run import Run
from gameday.text import printable, without_secrets
from gameday.values.nodes import NODE_LIFECYCLE_DOMAIN
from gameday.values.results import Cleanliness, Hop, Step

_DETECTOR_CORDONS = (Step.INJECT, Step.AWAIT_ALERT, Step.VERIFY_TAINT)


_PERSONS = "kubectl"
"""The prefix of the managers of manual changes: kubectl, kubectl-cordon, kubectl-taint, kubectl-edit."""
_LEAVING_TAINTS = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption")
"""Keys of the taints by which autoscalers announce that they delete a node."""
_TAKES_NODES_AWAY = re.compile(r"scaledown|delet|remov|terminat|disrupt|interrupt|preempt", re.IGNORECASE)
"""The reasons of the Events that say who removes a node, such as ScaleDown or DisruptionTerminating."""


class QuarantineListener(NodeListener):
    """Records the detector's hops, and aborts the run if somebody else cordons, taints or deletes a target."""

    def __init__(
        self,
        record: RunRecord,
        chain: DetectionChain,
        cordoned_by_us: Callable[[str], bool],
        keys_to_lift: Collection[str],
    ) -> None:
        """Listen on behalf of a run.

        Args:
            record: The run's plan and current step.
            chain: Where hops are recorded.
            cordoned_by_us: Returns True for a node that this run cordons or has cordoned.
            keys_to_lift: Keys of the taints that the cluster's detectors set and the run removes again.
        """
        self._record = record
        self._chain = chain
        self._cordoned_by_us = cordoned_by_us
        self._keys_to_lift = {*keys_to_lift, *(taint.key for taint in record.plan.expect.taints)}
        self._taken: set[str] = set()
        """Targets that somebody else cordoned or tainted during this run."""

    def on_decision(self, node: str, at: datetime) -> None:
        if self._record.step is not Step.BASELINE:
            self._chain.add(Hop.DECIDED, node, at, f"annotation {REASON_ANNOTATION}")

    def on_taint(self, seen: TaintSeen) -> None:
        expected = {(taint.key, taint.value, str(taint.effect)) for taint in self._record.plan.expect.taints}
        is_expected = (seen.taint.key, seen.taint.value, seen.taint.effect) in expected
        if seen.present and is_expected and self._record.step is not Step.BASELINE:
            source = f"watch of the node; written by {seen.manager or 'an unnamed manager'}"
            self._chain.add(Hop.TAINTED, seen.node, seen.at, source)
        if seen.present and not is_expected and self._is_somebody_elses(seen):
            self._leave_to_owner(seen.node, f"taint {seen.taint.key}", seen.manager, f"tainted {seen.taint}", seen.at)

    def _is_somebody_elses(self, seen: TaintSeen) -> bool:
        """Return True for a taint that a person or an autoscaler set; a detector's taint is the fault's own effect."""
        if self._record.step is Step.BASELINE or self._record.plan.recover.is_hands_off:
            return False
        by_hand = (seen.manager or "").startswith(_PERSONS) or seen.node in self._taken
        is_ours_to_lift = seen.taint.key in self._keys_to_lift or seen.taint.key.startswith(NODE_LIFECYCLE_DOMAIN)
        return seen.taint.key in _LEAVING_TAINTS or (by_hand and not is_ours_to_lift)

    def _leave_to_owner(self, node: str, what: str, manager: str | None, how: str, at: datetime) -> None:
        self._taken.add(node)
        self._record.note(LeftToOwner(node=node, what=what, by=manager or "", at=at))
        by = manager or "an unnamed manager"
        self._record.abort.request("guard", f"the target {node} was {how} by somebody else ({by})")

    def on_node(self, name: str, node: Any | None) -> None:
        if node is None and not self._record.plan.recover.is_hands_off:
            seen = [event for _, event in self._record.journal.history().about(KubernetesEventSeen, name)]
            told = [one for one in seen if _TAKES_NODES_AWAY.search(one.reason)]
            by = "no Event says by whom"
            if told:
                said = without_secrets(told[-1].message)
                by = printable(f"{told[-1].source or 'Kubernetes'}: {told[-1].reason}: {said}", 200)
            self._record.abort.request("guard", f"node {name} was deleted during the run ({by})")

    def on_cordon(self, seen: CordonSeen) -> None:
        """Take a cordon for the detector's if the plan expects one, and for a stranger's if nobody here sets one.

        A negative control judges a cordon itself. A cordon during the baseline fails its checks, and the run is
        refused. A cluster that repairs the node may cordon it at any time.
        """
        if not seen.cordoned:
            return
        expect, step, hands_off = self._record.plan.expect, self._record.step, self._record.plan.recover.is_hands_off
        if expect.cordoned and step in _DETECTOR_CORDONS:
            self._chain.add(Hop.TAINTED, seen.node, seen.at, "watch of the node; cordoned")
        unexpected = expect.cordoned is None and expect.stays_schedulable_for is None
        if unexpected and not hands_off and step is not Step.BASELINE and not self._cordoned_by_us(seen.node):
            self._leave_to_owner(seen.node, "scheduling", seen.manager, "cordoned", seen.at)


def settle_quarantine_put_back(run: Run, node: str) -> None:
    """Settle as dirty the marks that the run removed but the last look found again, with what a person must do.

    A detector that still reads the fault's lines puts its quarantine back. Removing it again would be a race, and would
    hide a real fault of the node.
    """
    looks = [seen.snapshot for _, seen in run.history().about(NodeSeen, node) if seen.phase == "after"]
    for entry in run.ledger.restorations_of(node) if looks else []:
        after = looks[-1]
        assert isinstance(entry.undo, RestoreNode)
        if entry.undo.is_met_by(after):
            continue
        back = [taint for taint in after.taints if entry.undo.removes(taint)]
        managers = {seen.taint: seen.manager for _, seen in run.history().about(TaintSeen, node) if seen.present}
        what = [f"{taint} by {managers.get(taint) or 'an unnamed manager'}" for taint in back]
        commands = [f"kubectl taint node {node} {taint.key}:{taint.effect}-" for taint in back]
        if after.unschedulable and entry.undo.unschedulable is False:
            what.append("cordoned")
            commands.append(f"kubectl uncordon {node}")
        found = f"{node} was quarantined again after the run had given it back: {', '.join(what)}"
        hint = f"see whether its detector has a reason; if not: {' && '.join(commands)} && gameday reap"
        run.problem(found, hint)
        run.ledger.settle(entry, Cleanliness.DIRTY, (found, hint))


def keep_out_of_service(run: Run, node: str, why: str) -> None:
    """Leave a quarantined node quarantined, and settle that as dirty; undo nothing on purpose.

    If a node was never quarantined, its entries are settled as clean.
    """
    now = run.nodes.now(node)
    for entry in run.ledger.quarantines_of(node):
        assert isinstance(entry.undo, RestoreNode)
        if now is None or not entry.undo.is_met_by(now):
            evidence = (why, "the node is kept out of service on purpose")
            run.ledger.settle(entry, Cleanliness.DIRTY, evidence)
        else:
            run.undo(entry)
