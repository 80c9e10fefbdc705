"""A fault that went in without its run learning of it: the run was stopped or died in between."""

from __future__ import annotations

from gameday.agent.task import AgentResult
from gameday.faults.optional import reach_of
from gameday.faults.registry import parse_parameters
from gameday.history.events import FaultInjected, TargetsChosen
from gameday.history.journal import History
from gameday.ledger.entries import Entry, TakeOutFault
from gameday.values.nodes import Target


def unheard_fault(history: History, entry: Entry, injector: AgentResult | None) -> FaultInjected | None:
    """Return the fault from its injector's last report.

    Args:
        history: The run's history so far.
        entry: The ledger's entry for the injector.
        injector: The injector's result; None if it left none.

    Returns:
        None if the fault did not go in, or the history already has a fault of this node: a second one, which the plan
        wants during the recovery, has its own event.
    """
    undo = entry.undo
    if not isinstance(undo, TakeOutFault) or injector is None or injector.written_at is None:
        return None
    if any(entry.node == fault.target.node for fault in history.of(FaultInjected)):
        return None
    chosen = [target for event in history.of(TargetsChosen) for target in event.targets if target.node == entry.node]
    try:
        reach = reach_of(parse_parameters(undo.fault))
        words = {"layer": reach.layer, "does_not_reach": reach.does_not_reach, "seen_by": reach.seen_by}
    except ValueError:  # the fault's package is not installed here
        words = {"layer": "layer not known"}
    return FaultInjected(
        intent=entry.id,
        target=chosen[-1] if chosen else Target(node=entry.node or ""),
        fault=str(undo.fault.get("type", "")),
        written_at=injector.written_at,
        evidence=injector.evidence,
        **words,
    )
