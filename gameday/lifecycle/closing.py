"""Close a run: last look, frames, watches, ledger, leases, costs. Every part is tried, even after another failed."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gameday.cluster.virtual_cluster import why_ended
from gameday.errors import AdapterError
from gameday.history.events import (
    Aborted,
    FaultUndone,
    IntentRecorded,
    NodeSeen,
    OwnCost,
    PrometheusFellBehind,
    RunEnded,
    StepEnded,
    StepStarted,
)
from gameday.history.frames import write_frames
from gameday.history.journal import History
from gameday.observe.collect import collect
from gameday.observe.node_states import note_nodes_after
from gameday.plain_file import not_written
from gameday.run.quarantine import settle_quarantine_put_back
from gameday.run.record import RunRecord
from gameday.run.run import Run
from gameday.run.run_ledger import RunLedger
from gameday.run.servers import Servers
from gameday.run.targets import chosen_targets
from gameday.values.results import Cleanliness, Step, StepOutcome


class Closing:
    """The remaining parts of closing a run; the last part added is done first."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._parts: list[tuple[str, Callable[[], object]]] = []
        self.add("end the history", partial(_end_history, record))

    def add(self, name: str, part: Callable[[], object]) -> None:
        """Add a part; `name` identifies it in a problem if it fails."""
        self._parts.append((name, part))

    def close(self) -> None:
        """Do the remaining parts. A part that fails becomes a problem in the history, and the next one is still done.

        A part that is interrupted by anything but an Exception stays, so that this can be called again.
        """
        while self._parts:
            name, part = self._parts[-1]
            try:
                part()
            except Exception as error:
                self._record.problem(f"{name}: {type(error).__name__}: {error}")
            self._parts.pop()


def insist(act: Callable[[], object]) -> None:
    """Run `act`, and once more if something interrupts it; then raise the interruption.

    Prefect interrupts a flow once, at any instruction, if it cannot renew the flow's concurrency slot.
    """
    try:
        act()
    except BaseException:
        act()
        raise


def unless_ended(folder: Path | None, part: Callable[[], object]) -> None:
    """Do a part that asks the cluster, unless it is a virtual cluster that has ended and cannot answer."""
    if not why_ended(folder):
        part()


def note_steps_not_reached(record: RunRecord) -> None:
    """Note every step that did not start because the run ended early."""
    history = record.journal.history()
    settled = {event.step for event in history.of(StepStarted)} | {event.step for event in history.of(StepEnded)}
    why = _why_not_reached(history.of(StepEnded))
    for step in Step:
        if step not in settled:
            record.note(StepEnded(step=step, outcome=StepOutcome.NOT_REACHED, why=why))


def _why_not_reached(ended: Sequence[StepEnded]) -> str:
    if stopped := next((event for event in reversed(ended) if event.outcome is not StepOutcome.DONE), None):
        return f"{stopped.step} ended the run"
    return f"the run stopped after {ended[-1].step}" if ended else "the run stopped before its first step"


def look_last(run: Run) -> None:
    """Note the targets once more if something was undone after QA's look: an excluded node may be back.

    If somebody restored a quarantine after the run had lifted it, it is settled as dirty.
    """
    nodes = [target.node for target in chosen_targets(run.history())]
    if not _is_last_word_a_look(run.history()):
        note_nodes_after(run, nodes)
    for node in nodes:
        settle_quarantine_put_back(run, node)


def _is_last_word_a_look(history: History) -> bool:
    for record in reversed(history.records):
        if isinstance(record.event, FaultUndone):
            return False
        if isinstance(record.event, NodeSeen) and record.event.phase == "after":
            return True
    return False


def save_frames(run: Run) -> None:
    """Collect the data of the frames, and write them into the run's folder."""
    folder = run.record.folder
    if why_ended(run.profile.rehearsal):
        # No history has the alerts since the last look, so an alert that was not seen may still have fired.
        why, hint = "it ended with the virtual cluster", "play the game-day again"
        run.note(PrometheusFellBehind(since=run.record.started, until=run.clock.now(), why=why, hint=hint))
        return
    if run.record.why_unwritten:  # the remaining room is for the history's end and the report
        run.problem("the frames are left out, to keep the room for the report: no series is in it")
        return
    try:
        write_frames(collect(run), folder / "frames")
    except OSError as error:
        run.problem(f"the frames cannot be written: {not_written(error, folder)}")


def close_ledger(record: RunRecord, ledger: RunLedger) -> None:
    """Delete a ledger with only clean entries. This comes before the leases: without them the run would seem dead."""
    try:
        ledger.stored.delete() if ledger.stored.all_clean() else ledger.stored.flush()
    except AdapterError as error:
        record.problem(f"the ledger could not be closed: {error}", "`gameday reap` does it")


def note_costs(record: RunRecord, servers: Servers) -> None:
    """Note the run's cost to the servers and to this machine."""
    for cost in servers.costs():
        record.note(cost)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    record.note(OwnCost(cpu_s=record.cpu_s, peak_rss_bytes=peak))


def worst_cleanliness(history: History) -> Cleanliness:
    """Return the worst state read back after any undo; UNKNOWN for an intent without an undo."""
    settled = {undone.intent: undone.cleanliness for undone in history.of(FaultUndone)}
    found = [settled.get(intent.intent, Cleanliness.UNKNOWN) for intent in history.of(IntentRecorded)]
    for worst in (Cleanliness.DIRTY, Cleanliness.UNKNOWN):
        if worst in found:
            return worst
    return Cleanliness.CLEAN


def _end_history(record: RunRecord) -> None:
    ended = RunEnded(cleanliness=worst_cleanliness(record.journal.history()))
    record.note(ended)
    if record.why_unwritten and not record.journal.history().last(Aborted):  # the last step was over by then
        record.note(Aborted(by="guard", why=record.why_unwritten))
        record.note(ended)
    record.journal.close()
