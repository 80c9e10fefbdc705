"""Distinguish the detector's quarantine of a target from ours and a stranger's; keep a bad node out of service."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from gameday.cluster.nodes import REASON_ANNOTATION
from gameday.history.events import CordonSeen, NodeSeen, TaintSeen
from gameday.ledger.entries import RestoreNode
from gameday.run.detection_chain import DetectionChain
from gameday.run.node_watch import NodeListener
from gameday.run.record import RunRecord
from gameday.run.run import Run
from gameday.values.results import Cleanliness, Hop, Step

_DETECTOR_CORDONS = (Step.INJECT, Step.AWAIT_ALERT, Step.VERIFY_TAINT)


class QuarantineListener(NodeListener):
    """Records the detector's hops, and aborts the run where somebody else cordons a target."""

    def __init__(self, record: RunRecord, chain: DetectionChain, cordoned_by_us: Callable[[str], bool]) -> None:
        """Listen on behalf of a run.

        Args:
            record: The run's plan and current step.
            chain: Where hops are recorded.
            cordoned_by_us: Returns True for a node that this run cordons or has cordoned.
        """
        self._record = record
        self._chain = chain
        self._cordoned_by_us = cordoned_by_us

    def on_decision(self, node: str, at: datetime) -> None:
        if self._record.step is not Step.BASELINE:
            self._chain.add(Hop.DECIDED, node, at, f"annotation {REASON_ANNOTATION}")

    def on_taint(self, seen: TaintSeen) -> None:
        expected = {(taint.key, taint.value, str(taint.effect)) for taint in self._record.plan.expect.taints}
        is_expected = (seen.taint.key, seen.taint.value, seen.taint.effect) in expected
        if seen.present and is_expected and self._record.step is not Step.BASELINE:
            source = f"watch of the node; written by {seen.manager or 'an unnamed manager'}"
            self._chain.add(Hop.TAINTED, seen.node, seen.at, source)

    def on_cordon(self, seen: CordonSeen) -> None:
        """Take a cordon for the detector's where the plan expects one, and for a stranger's where nobody here sets one.

        A negative control judges a cordon itself. A cordon that comes during the baseline is a refusal of its checks.
        A cluster that repairs the node may cordon it whenever it wants.
        """
        if not seen.cordoned:
            return
        expect, step, hands_off = self._record.plan.expect, self._record.step, self._record.plan.recover.is_hands_off
        if expect.cordoned and step in _DETECTOR_CORDONS:
            self._chain.add(Hop.TAINTED, seen.node, seen.at, "watch of the node; cordoned")
        unexpected = expect.cordoned is None and expect.stays_schedulable_for is None
        if unexpected and not hands_off and step is not Step.BASELINE and not self._cordoned_by_us(seen.node):
            self._record.abort.request("guard", f"the target {seen.node} was cordoned by somebody else")


def settle_quarantine_put_back(run: Run, node: str) -> None:
    """Settle as dirty what the run took off a node and the last look found there again, with what a person must do.

    A detector that still reads the fault's lines puts its quarantine back. Taking it off once more would be a race, and
    would hide a fault of the node's own.
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

    A node that never was quarantined is as it was, and its entries are settled as clean.
    """
    now = run.nodes.now(node)
    for entry in run.ledger.quarantines_of(node):
        assert isinstance(entry.undo, RestoreNode)
        if now is None or not entry.undo.is_met_by(now):
            evidence = (why, "the node is kept out of service on purpose")
            run.ledger.settle(entry, Cleanliness.DIRTY, evidence)
        else:
            run.undo(entry)
