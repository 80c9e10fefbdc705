"""A run that slept past its lease: whoever took it for dead has undone it, and may be at work on its node by now.

What that one's undo has taken out must not be undone again: the taint that is
there now may be the quarantine of another run.
"""

from __future__ import annotations

from gameday.cluster.manifests import RUN_LABEL
from gameday.errors import AdapterError, LeaseLostError
from gameday.history.events import FaultUndone
from gameday.ledger.entries import DeletePod, Entry, TakeOutFault
from gameday.run.run import Run
from gameday.values.results import Cleanliness


def reconcile_with_reaper(run: Run) -> None:
    """Where the lease is lost and the ledger gone: note as clean what the reaper undid, and leave open what is there.

    A ledger goes only when every entry was read back as undone, so that its absence is the proof. A pod of ours that
    is there all the same came later, from a request that was under way: that stays open, and is undone by us.
    """
    try:
        run.leases.check()
        return
    except LeaseLostError as error:
        lost = str(error)
    try:
        if not run.ledger.stored.is_gone():
            return
        left = _pods(run)
    except AdapterError as error:
        run.problem(f"{lost}; whether the run was reaped meanwhile could not be asked: {error}")
        return
    run.problem(f"{lost}; the reaper took the run for dead meanwhile: everything was undone by the reaper")
    proof = (
        f"the ledger {run.ledger.stored.name} is gone: the reaper deletes one when all of it was read back as undone"
    )
    for entry in run.ledger.open_entries():
        if _pod_of(entry) not in left:
            run.note(
                FaultUndone(
                    intent=entry.id,
                    node=entry.node,
                    by="reaper",
                    cleanliness=Cleanliness.CLEAN,
                    evidence=(proof, "none of our pods of it is there"),
                )
            )
            run.ledger.stored.settle(entry, Cleanliness.CLEAN, "reaper", (proof,))


def _pods(run: Run) -> set[str]:
    """Names of the run's pods now, asked anew: a watch that slept may be behind."""
    with run.kubernetes.explained("list the run's pods"):
        selector = f"{RUN_LABEL}={run.id}"
        found = run.kubernetes.core.list_namespaced_pod(run.profile.namespace, label_selector=selector).items
    return {pod.metadata.name for pod in found}


def _pod_of(entry: Entry) -> str:
    return entry.undo.pod if isinstance(entry.undo, DeletePod | TakeOutFault) else ""
