"""Undo everything that a run did, no matter how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from gameday.cluster.virtual_cluster import why_ended
from gameday.errors import AbortedError, RefusedError, StepFailedError
from gameday.history.events import Aborted, FaultUndone, Problem, Refused, StepEnded, StepStarted
from gameday.ledger.entries import Entry, RestoreNode
from gameday.lifecycle.closing import insist
from gameday.observe.nvml import keep_samples
from gameday.reaper.histories import reconcile_with_reaper
from gameday.reaper.late_quarantine import await_late_quarantines
from gameday.run.quarantine import keep_out_of_service
from gameday.run.run import Run
from gameday.values.results import Cleanliness, Step, StepOutcome

# An undo that fails, for example because the API server restarts or a pod takes long to end, is repeated for this time;
# for less after a signal, because its sender will not wait long (Prefect: 30 s).
_RETRY_S = 60.0
_RETRY_AFTER_SIGNAL_S = 12.0
_PAUSE_S = 1.0


@contextmanager
def undo_at_the_end(run: Run, *, return_without_qa: bool = False) -> Iterator[None]:
    """Note why the block ended, then undo and verify everything that the run did.

    Args:
        run: The run.
        return_without_qa: Return a quarantined node to service even if the flow has no QA step. By default such a node
            stays out of service, and the cluster is dirty, because the node was not proved good.

    Raises:
        StopRunError: The block raised it; it is in the history by then. Other errors pass through, too.
    """
    try:
        yield
        _note_steps_left_out(run)
    except RefusedError as error:
        run.note(Refused(why=error.why, hint=error.hint))
        raise
    except AbortedError as error:
        run.note(Aborted(by=error.by, why=error.why))
        raise
    except StepFailedError as error:
        run.note(Problem(step=run.record.step, what=error.why, hint=error.hint))
        raise
    except Exception:
        raise
    except BaseException as error:
        run.note(Aborted(by="guard", why=f"broken off from outside, by {type(error).__name__}"))
        raise
    finally:
        insist(partial(undo_everything, run, return_without_qa=return_without_qa))


def undo_everything(run: Run, *, return_without_qa: bool = False) -> None:
    """Undo what is still open, newest first, and return nodes last. Errors of the cluster are not raised."""
    if not why_ended(run.profile.rehearsal):
        _undo_in_cluster(run, return_without_qa=return_without_qa)
    if why_ended(run.profile.rehearsal):  # before the undo, or in the middle of it
        _note_gone_with_cluster(run)


def _undo_in_cluster(run: Run, *, return_without_qa: bool) -> None:
    reconcile_with_reaper(run)
    for act in run.before_undo:
        act(run)
    _undo_all(run, lambda entry: not isinstance(entry.undo, RestoreNode))
    if await_late_quarantines(run):
        # The process may have slept meanwhile.
        reconcile_with_reaper(run)
    if not return_without_qa and _leaves_qa_out(run):
        for node in {entry.node for entry in run.ledger.open_entries() if isinstance(entry.undo, RestoreNode)}:
            keep_out_of_service(run, node or "", "the flow has no QA step, so the node was not proved good")
    _undo_all(run, lambda entry: isinstance(entry.undo, RestoreNode))


def _note_gone_with_cluster(run: Run) -> None:
    """Note that everything the run had changed in a virtual cluster went when the cluster ended."""
    gone = ("the virtual cluster has ended, and everything in it with it",)
    for entry in run.ledger.open_entries():
        run.note(FaultUndone(intent=entry.id, node=entry.node, by="flow", cleanliness=Cleanliness.CLEAN, evidence=gone))


def _note_steps_left_out(run: Run) -> None:
    """Note the steps that a flow left out although it ended normally."""
    started = {event.step for event in run.history().of(StepStarted)}
    for step in Step:
        if step not in started:
            run.note(StepEnded(step=step, outcome=StepOutcome.NOT_ASKED, why=f"this flow leaves out the step '{step}'"))


def _leaves_qa_out(run: Run) -> bool:
    ended = run.history().of(StepEnded)
    return any(event.step is Step.QA_NODE and event.outcome is StepOutcome.NOT_ASKED for event in ended)


def _undo_all(run: Run, chosen: Callable[[Entry], bool]) -> None:
    abort = run.record.abort
    deadline = run.clock.monotonic() + (_RETRY_AFTER_SIGNAL_S if abort.by_operator else _RETRY_S)
    entries = [entry for entry in run.ledger.open_entries() if chosen(entry)]
    while entries:
        final = {entry.id for entry in entries if not _undo(run, entry)}
        entries = [entry for entry in run.ledger.open_entries() if chosen(entry) and entry.id not in final]
        is_over = run.clock.monotonic() > deadline or abort.second_signal or why_ended(run.profile.rehearsal)
        if is_over or not entries:
            break
        run.clock.sleep(_PAUSE_S)


def _undo(run: Run, entry: Entry) -> bool:
    """Undo one entry; return True if trying again may help.

    It does not help against a bug of ours, nor if the finding is that a node has to stay out of service.
    """
    try:
        keep_samples(run, entry)
        run.undo(entry)
    except Exception as error:
        # The intent counts as unknown, because its undo is not noted.
        run.problem(f"the undo of {entry.id} failed: {type(error).__name__}: {error}", "`gameday reap` tries again")
        return False
    return not isinstance(entry.undo, RestoreNode) or run.ledger.fault_on(entry.node) is Cleanliness.CLEAN
