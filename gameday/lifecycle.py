"""Open a run and close it: the locks, the ledger, the undo that is never skipped, and the last look."""

from __future__ import annotations

import getpass
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from gameday import __version__
from gameday.cluster.http import AdapterError, CallCounter
from gameday.cluster.pods import PodFollower
from gameday.cluster.profile import ClusterProfile
from gameday.history.events import (
    Aborted,
    ApiCost,
    Cleanliness,
    FaultUndone,
    IntentRecorded,
    NodeSeen,
    Problem,
    Refused,
    RunEnded,
    RunStarted,
    Step,
    StepEnded,
    StepOutcome,
    StepStarted,
)
from gameday.history.journal import Journal
from gameday.ledger.entries import Header, RestoreNode
from gameday.ledger.lease import CLUSTER_LEASE, LeaseHeldError, Leases
from gameday.ledger.ledger import Ledger
from gameday.observe.collect import collect
from gameday.plan.load import LoadedPlan
from gameday.run.context import Run, Servers
from gameday.run.stop import AbortedError, RefusedError, StepFailedError

_SYNCED_WITHIN_S = 10.0
# A detector that was about to quarantine the node when we stopped is given this long, so that its taint does not
# come after our restore; with the undo itself it stays below the 30 s Prefect grants (research/prefect.md).
_LATE_TAINT_WITHIN = timedelta(seconds=8)

Trigger = Literal["rehearsal", "manual", "scheduled"]


def new_run_id() -> str:
    """Sortable, fit for an object's name, and unique enough for runs that hold one lease."""
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


@contextmanager
def open_run(
    run_id: str,
    loaded: LoadedPlan,
    profile: ClusterProfile,
    reports: Path,
    *,
    trigger: Trigger,
    command: str,
    flow_run: tuple[str, str | None] | None = None,
) -> Iterator[Run]:
    """A run whose steps may now be carried out; afterwards everything is undone and written down.

    Raises OSError when the report folder cannot be written: nothing was changed
    then. What stops a run early (StopRunError) ends here, in the history.
    """
    folder = reports / run_id
    folder.mkdir(parents=True)
    (folder / "plan.yaml").write_bytes(loaded.source)
    (folder / "plan.json").write_text(loaded.plan.model_dump_json(indent=1), encoding="utf-8")
    journal = Journal(folder / "history.jsonl")
    run = Run(run_id, folder, loaded, profile, journal)
    try:
        with run.abort.on_signals():
            try:
                _guarded(run, trigger, command, flow_run)
            except RefusedError as error:
                # A context manager cannot leave out the body it stands before: the body's first step raises this.
                run.abort.refuse(error)
            with _time_limit(run):
                yield run
    except RefusedError as error:
        run.note(Refused(why=error.why, hint=error.hint))
    except AbortedError as error:
        run.note(Aborted(by=error.by, why=error.why))
    except StepFailedError as error:
        run.note(Problem(step=run.step, what=error.why, hint=error.hint))
    finally:
        with run.abort.on_signals():
            _close(run)


def _guarded(run: Run, trigger: Trigger, command: str, flow_run: tuple[str, str | None] | None) -> None:
    """Everything that must hold before the first step; raises RefusedError for what does not."""
    try:
        run.servers = Servers(run.profile)
        identity = run.kubernetes.identity()
        run.note(
            RunStarted(
                run_id=run.id,
                plan_name=run.plan.name,
                plan_sha256=run.loaded.sha256,
                gameday_version=__version__,
                trigger=trigger,
                operator=getpass.getuser(),
                cluster=f"{run.profile.name} ({identity.server})",
                cluster_uid=identity.uid,
                server_version=identity.version,
                flow_run_id=flow_run[0] if flow_run else None,
                flow_run_url=flow_run[1] if flow_run else None,
                command=command,
            )
        )
        run.leases = Leases(run.kubernetes, run.id, lambda why: run.abort.request("guard", why))
        run.leases.acquire(CLUSTER_LEASE)
        run.leases.keep_renewing()
        header = Header(
            run_id=run.id, plan=run.plan.name, started=run.started, operator=getpass.getuser(), host=platform.node()
        )
        run.ledger = Ledger(run.kubernetes, header)
        run.pods = PodFollower(run.kubernetes, run.id)
        run.pods.__enter__()
        if not run.pods.wait_synced(_SYNCED_WITHIN_S):
            raise RefusedError(f"no watch of our pods within {_SYNCED_WITHIN_S:g} s from {run.kubernetes.server}")
    except LeaseHeldError as error:
        raise RefusedError(str(error), f"wait for run {error.holder}, or `gameday reap` if it is dead") from None
    except AdapterError as error:
        raise RefusedError(str(error), error.hint) from None


@contextmanager
def _time_limit(run: Run) -> Iterator[None]:
    """The plan's max_duration as a guard: when it passes, the run is aborted and undone."""
    limit = run.plan.guardrails.max_duration
    why = f"the run took longer than guardrails.max_duration ({limit.total_seconds():g} s)"
    timer = threading.Timer(limit.total_seconds(), run.abort.request, ("guard", why))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _close(run: Run) -> None:
    """Undo first; then write down the rest. Every part goes on after the failure of another."""
    cleanliness = undo_everything(run)
    for part in (_say_not_reached, _last_look, _save_frames, _stop_following, _close_ledger, _release, _note_costs):
        try:
            part(run)
        except Exception as error:
            run.problem(f"{part.__name__.strip('_').replace('_', ' ')}: {type(error).__name__}: {error}")
    if hasattr(run, "servers"):
        run.servers.close()
    run.note(RunEnded(cleanliness=cleanliness))
    run.journal.close()


def _last_look(run: Run) -> None:
    if run.targets and not any(seen.phase == "after" for seen in run.journal.history().of(NodeSeen)):
        run.see_nodes_after()


def _save_frames(run: Run) -> None:
    try:
        collect(run).save(run.folder / "frames")
    except OSError as error:
        run.problem(f"the frames cannot be written: {error.filename or run.folder}: {error.strerror}")


def _stop_following(run: Run) -> None:
    for tail in run.log_tails.values():
        tail.stop()
    for follower in (*run.nodes.values(), *run.node_pods.values()):
        follower.stop()
    if hasattr(run, "pods"):
        run.pods.__exit__(None, None, None)


def _close_ledger(run: Run) -> None:
    """Before the leases: a ledger whose run holds none is a dead run's."""
    if not hasattr(run, "ledger"):
        return
    try:
        run.ledger.delete() if run.ledger.all_clean() else run.ledger.flush()
    except AdapterError as error:
        run.problem(f"the ledger could not be closed: {error}", "`gameday reap` does it")


def _release(run: Run) -> None:
    if hasattr(run, "leases"):
        run.leases.release()


def undo_everything(run: Run) -> Cleanliness:
    """Undo what is still open, newest first; the worst finding of the whole run."""
    if not hasattr(run, "ledger"):
        return Cleanliness.CLEAN
    for entry in run.ledger.open_entries():
        try:
            if isinstance(entry.undo, RestoreNode) and entry.node:
                _let_late_taint_come(run, entry.node)
            run.undo(entry)
        except Exception as error:
            # An intent of which no undo is told counts as unknown.
            run.problem(f"the undo of {entry.id} failed: {type(error).__name__}: {error}", "`gameday reap` tries again")
    return _worst(run)


def _let_late_taint_come(run: Run, node: str) -> None:
    """After an early stop, wait for the taint the detector is about to set, so that it can be removed."""
    fault = run.injected().get(node)
    if fault is None or run.abort.hurried or node not in run.nodes:
        return
    keys, expect = run.quarantine_keys, run.plan.expect
    longest = max([expect.stays_schedulable_for or timedelta(), *(taint.within for taint in expect.taints)])
    left = min(_LATE_TAINT_WITHIN, fault.written_at + longest - datetime.now(UTC))
    follower = run.nodes[node]
    deadline = datetime.now(UTC) + left
    with follower.changed:
        while (remaining := (deadline - datetime.now(UTC)).total_seconds()) > 0 and not run.abort.hurried:
            now = run.node_now(node)
            if now and any(taint.key in keys for taint in now.taints):
                return
            follower.changed.wait(min(remaining, 0.5))


def _worst(run: Run) -> Cleanliness:
    history = run.journal.history()
    settled = {undone.intent: undone.cleanliness for undone in history.of(FaultUndone)}
    found = [settled.get(intent.intent, Cleanliness.UNKNOWN) for intent in history.of(IntentRecorded)]
    for worst in (Cleanliness.DIRTY, Cleanliness.UNKNOWN):
        if worst in found:
            return worst
    return Cleanliness.CLEAN


def _say_not_reached(run: Run) -> None:
    history = run.journal.history()
    started = {event.step for event in history.of(StepStarted)}
    stopped = next((e for e in reversed(history.of(StepEnded)) if e.outcome is not StepOutcome.DONE), None)
    why = f"{stopped.step} ended the run" if stopped else "the run stopped before its first step"
    for which in Step:
        if which not in started:
            run.note(StepEnded(step=which, outcome=StepOutcome.NOT_REACHED, why=why))


def _note_costs(run: Run) -> None:
    if not hasattr(run, "servers"):
        return
    servers = run.servers
    counters: list[tuple[Literal["kubernetes", "prometheus", "alertmanager", "loki"], CallCounter]] = [
        ("kubernetes", servers.kubernetes.counter),
        ("prometheus", servers.prometheus.http.counter),
        ("alertmanager", servers.alertmanager.http.counter),
        ("loki", servers.loki.http.counter),
    ]
    for server, counter in counters:
        cost = counter.cost()
        run.note(
            ApiCost(
                server=server,
                requests=cost.requests,
                bytes_received=cost.bytes_received,
                bytes_sent=cost.bytes_sent,
                by_call=cost.by_call,
            )
        )
