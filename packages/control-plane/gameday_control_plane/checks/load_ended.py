"""The load must run to its end as the plan has it: one that broke off proves nothing about what held it.

Seats that were never asked for hold anybody. So if the clients died, their node ran short of memory, or their agent
left no word, the run's answer is unknown, even if the other checks hold.
"""

from __future__ import annotations

from gameday.checks.verdict import Status, Verdict
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step
from gameday_control_plane.events import LoadEnded

ORDER = 58


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    """Return a verdict for each load that the run waited for; without one there is nothing to judge."""
    return by_history(history)


def by_history(history: History) -> list[Verdict]:
    """Return the verdicts from the events alone, which a run has while it goes on."""
    return [
        Verdict(
            check="load-ended",
            expectation="The load on the API servers runs to its end",
            measured="" if event.failed else "its agent says so",
            status=Status.UNKNOWN if event.failed else Status.HELD,
            step=Step.VERIFY_TAINT,
            why=event.failed,
            evidence=(record.seq,),
            node=event.node,
        )
        for record, event in history.with_times(LoadEnded)
    ]
