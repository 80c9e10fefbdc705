"""The pods of the way back to work, written into the ledger together: what brings a node back is one thing."""

from __future__ import annotations

from datetime import timedelta

from gameday.ledger.entries import DeletePod, Entry
from gameday.run.agents import AGENT_STARTS_WITHIN, agent_act, intent_id
from gameday.run.canary import MEASURED_WITHIN
from gameday.run.run import Run
from gameday.values.nodes import Target
from gameday.values.results import Cleanliness

# A pod that may run again does so within this.
RETURNS_WITHIN = timedelta(seconds=60)


def intend_way_back(run: Run, target: Target, number: int, *, first: timedelta = timedelta()) -> None:
    """QA's pod and the one that shows that the node takes work again, with the next intent in one write.

    `first` is how long what comes before them may take. An undo of one that was never made finds nothing to delete.
    """
    lasts = first + run.plan.qa.within + AGENT_STARTS_WITHIN + MEASURED_WITHIN + RETURNS_WITHIN
    name = run.name("qa", number)
    undo = DeletePod(pod=name)
    run.intend(intent_id(run, name), agent_act("qa", target.node), undo, target.node, lasts, with_next=True)
    intend_return(run, target, number, lasts, with_next=True)


def intend_return(
    run: Run, target: Target, number: int, lasts: timedelta = RETURNS_WITHIN, *, with_next: bool = False
) -> Entry:
    """Of a pod that shows that the node takes work again; where it was written ahead, only its entry."""
    name = run.name("return", number)
    undo = DeletePod(pod=name)
    return run.intend(f"return-{number}", f"create canary pod {name}", undo, target.node, lasts, with_next=with_next)


def never_returned(run: Run, number: int) -> None:
    """A node that stays out of service gets no pod: its intent is void."""
    for entry in run.ledger.open_entries():
        if entry.id == f"return-{number}":
            run.settle(entry, Cleanliness.CLEAN, ("never made: the node is kept out of service",))
