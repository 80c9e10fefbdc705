"""Open a run and close it: the locks, the ledger, the undo that is never skipped, and the last look."""

from __future__ import annotations

import getpass
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal

from gameday import __version__
from gameday.cluster.pods import PodFollower
from gameday.cluster.profile import ClusterProfile
from gameday.errors import AbortedError, AdapterError, LeaseHeldError, RefusedError, SeasonGoneError, StepFailedError
from gameday.guard.check import watching
from gameday.history.events import (
    Aborted,
    DetectorConsulted,
    FaultUndone,
    IntentRecorded,
    NodeSeen,
    OwnCost,
    Problem,
    Refused,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
)
from gameday.history.journal import Journal
from gameday.ledger.entries import Entry, Header, RestoreNode
from gameday.ledger.lease import CLUSTER_LEASE, Leases
from gameday.ledger.ledger import Ledger
from gameday.observe.collect import collect
from gameday.plan.load import LoadedPlan
from gameday.reaper.dead_histories import note_reaped, undone_by
from gameday.reaper.excluded_nodes import nodes_to_leave_alone
from gameday.reaper.late_quarantine import await_late_quarantines
from gameday.reaper.lease_lost import settle_what_was_reaped
from gameday.reaper.reap import reap_under
from gameday.run.connections import Servers
from gameday.run.run import Run
from gameday.run.season_member import SeasonMember
from gameday.values.results import Cleanliness, Step, StepOutcome

# What could not be undone, because the API server restarts, say, or a pod takes long to end, is tried again for this
# long; less where a signal ended the run, because then somebody's own limit is running (Prefect's 30 s).
_UNDO_AGAIN_S = 60.0
_UNDO_AGAIN_AFTER_SIGNAL_S = 12.0
_UNDO_PAUSE_S = 1.0

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
    carried_by: str | None = None,
    member: SeasonMember | None = None,
) -> Iterator[Run]:
    """A run whose steps may now be carried out; afterwards everything is undone and written down.

    `carried_by`: the flow run that this process was started for, by which its hooks find what the process left.
    A season's `member` is covered by the season's lease and keeps to the nodes it was given.

    Raises OSError when the report folder cannot be written: nothing was changed
    then. What stops a run early (StopRunError) ends here, in the history.
    """
    folder = reports / run_id
    folder.mkdir(parents=True)
    (folder / "plan.yaml").write_bytes(loaded.source)
    (folder / "plan.json").write_text(loaded.plan.model_dump_json(indent=1), encoding="utf-8")
    journal = Journal(folder / "history.jsonl")
    run = Run(run_id, folder, loaded, profile, journal, member)
    closing = _closing()
    # Around all of it: a signal that came between the run and its undo would end the one and skip the other.
    with run.abort.on_signals():
        try:
            try:
                _guarded(run, trigger, command, flow_run, carried_by)
            except RefusedError as error:
                # A context manager cannot leave out the body it stands before: the body's first step raises this.
                run.abort.refuse(error)
            with watching(run):
                yield run
        except RefusedError as error:
            run.note(Refused(why=error.why, hint=error.hint))
        except AbortedError as error:
            run.note(Aborted(by=error.by, why=error.why))
        except StepFailedError as error:
            run.note(Problem(step=run.step, what=error.why, hint=error.hint))
        except Exception:
            raise
        except BaseException as error:
            run.note(Aborted(by="guard", why=f"broken off from outside, by {type(error).__name__}"))
            raise
        finally:
            try:
                _close(run, closing)
            except BaseException:
                # Prefect throws into a flow whose concurrency slot it cannot renew, at any instruction, and once.
                if not run.journal.history().last(RunEnded):
                    _close(run, closing)
                raise


def _guarded(
    run: Run, trigger: Trigger, command: str, flow_run: tuple[str, str | None] | None, carried_by: str | None
) -> None:
    """Everything that must hold before the first step; raises RefusedError for what does not."""
    try:
        run.opened.servers = Servers(run.profile)
        _note_start(run, trigger, command, flow_run)
        _allowed_here(run)
        if taken := run.loaded.from_detector:
            run.note(DetectorConsulted(**asdict(taken)))
        _take_lease(run)
        _follow_our_pods(run)
        if not run.member:
            _reap_first(run)
        header = Header(
            run_id=run.id,
            plan=run.plan.name,
            started=run.started,
            operator=getpass.getuser(),
            host=platform.node(),
            flow_run=carried_by,
        )
        run.opened.ledger = Ledger(run.kubernetes, header)
    except LeaseHeldError as error:
        raise RefusedError(str(error), f"wait for run {error.holder}, or `gameday reap` if it is dead") from None
    except SeasonGoneError as error:
        raise RefusedError(str(error), "a season's game-days run within it; run this plan by itself") from None
    except AdapterError as error:
        raise RefusedError(f"{error.url}: {error.cause}", error.hint) from None


def _note_start(run: Run, trigger: Trigger, command: str, flow_run: tuple[str, str | None] | None) -> None:
    """The first that the cluster is asked; raises AdapterError."""
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
            cluster_name=run.profile.name,
            cluster_id=run.profile.identity or identity.uid,
            server_version=identity.version,
            flow_run_id=flow_run[0] if flow_run else None,
            flow_run_url=flow_run[1] if flow_run else None,
            command=command,
        )
    )


def _take_lease(run: Run) -> None:
    """The cluster's, or its season's word for it; raises LeaseHeldError, SeasonGoneError, AdapterError."""
    leases = run.opened.leases = Leases(
        run.kubernetes,
        run.id,
        lambda why: run.abort.request("guard", why),
        timedelta(seconds=run.profile.lease_duration_s),
        run.abort.sleep,
    )
    if run.member:
        leases.rely_on(run.member.season)
    else:
        leases.acquire(CLUSTER_LEASE)
        leases.keep_renewing()


def _follow_our_pods(run: Run) -> None:
    """One watch for the run's own pods and for what dead runs left; a season has seen to the latter."""
    told = partial(run.pod_states.of_run, run.profile.namespace)
    pods = run.opened.pods = PodFollower(run.kubernetes, run.id, told, of_every_run=run.member is None)
    pods.__enter__()
    pods.require_synced()


def _reap_first(run: Run) -> None:
    """Undo what dead runs left, before anything is measured or changed; raises RefusedError where that is not known to
    be out.

    The dead runs' own histories hear of it. What was found dirty, or lies on a node that is away, is a person's
    business: its node is no target.
    """
    result = reap_under(run.kubernetes, run.id, pods=run.pods.pods_of_other_runs())
    for one in result.reaped:
        run.problem(
            f"run {one.run_id} left open: {one.entry.act} ({one.entry.object}); reaped, and found {one.cleanliness}"
        )
    for dead in result.news:
        try:
            note_reaped(run.folder.parent / dead, result, undone_by(f"run {run.id}", result, dead))
        except OSError as error:
            run.problem(f"the history of run {dead} cannot be written on: {error.strerror}")
    run.dirty_nodes = nodes_to_leave_alone(run.kubernetes, result)


def _allowed_here(run: Run) -> None:
    """A plan that is copied from another cluster must not bring its dangers along."""
    for fault, why in run.plan.dangers().items():
        if fault not in run.profile.allow_dangerous:
            raise RefusedError(
                f"profile {run.profile.name} does not allow the dangerous fault {fault} ({why})",
                f"add {fault} to the profile's allow_dangerous, if this cluster may bear it",
            )


def _closing() -> list[Callable[[Run], object]]:
    """What comes after the undo, in this order."""
    return [
        _say_not_reached,
        _last_look,
        _save_frames,
        _stop_following,
        _close_ledger,
        _release,
        _note_costs,
    ]


def _close(run: Run, parts: list[Callable[[Run], object]]) -> None:
    """Undo first; then write down the rest. Every part goes on after the failure of another, and is struck off once it
    is through."""
    cleanliness = undo_everything(run)
    while parts:
        part = parts[0]
        try:
            part(run)
        except Exception as error:
            run.problem(f"{part.__name__.strip('_').replace('_', ' ')}: {type(error).__name__}: {error}")
        parts.remove(part)
    if run.opened.servers:
        run.opened.servers.close()
    run.note(RunEnded(cleanliness=cleanliness))
    run.journal.close()


def _last_look(run: Run) -> None:
    """Taken again where something was undone after QA's look: a node that it kept out of service may be back."""
    for record in reversed(run.journal.history().records):
        if isinstance(record.event, FaultUndone):
            break
        if isinstance(record.event, NodeSeen) and record.event.phase == "after":
            return
    if run.targets:
        run.see_nodes_after()


def _save_frames(run: Run) -> None:
    try:
        collect(run).save(run.folder / "frames")
    except OSError as error:
        run.problem(f"the frames cannot be written: {error.filename or run.folder}: {error.strerror}")


def _stop_following(run: Run) -> None:
    for tail in run.log_tails.values():
        tail.stop()
    run.stop_following()
    if run.opened.pods:
        run.opened.pods.__exit__(None, None, None)


def _close_ledger(run: Run) -> None:
    """Before the leases: a ledger whose run holds none is a dead run's."""
    ledger = run.opened.ledger
    if ledger is None:
        return
    try:
        ledger.delete() if ledger.all_clean() else ledger.flush()
    except AdapterError as error:
        run.problem(f"the ledger could not be closed: {error}", "`gameday reap` does it")


def _release(run: Run) -> None:
    if run.opened.leases:
        run.opened.leases.release()


def undo_everything(run: Run) -> Cleanliness:
    """Undo what is still open, newest first, and give nodes back last; the worst finding of the whole run."""
    if run.opened.ledger is None:
        return Cleanliness.CLEAN
    settle_what_was_reaped(run)
    _undo_all(run, lambda entry: not isinstance(entry.undo, RestoreNode))
    if await_late_quarantines(run):
        # It may have been asleep.
        settle_what_was_reaped(run)
    _undo_all(run, lambda entry: isinstance(entry.undo, RestoreNode))
    return _worst(run)


def _undo_all(run: Run, chosen: Callable[[Entry], bool]) -> None:
    deadline = time.monotonic() + (_UNDO_AGAIN_AFTER_SIGNAL_S if run.abort.by_operator else _UNDO_AGAIN_S)
    entries = [entry for entry in run.ledger.open_entries() if chosen(entry)]
    while entries:
        failed = {entry.id for entry in entries if not _undo(run, entry)}
        entries = [entry for entry in run.ledger.open_entries() if chosen(entry) and entry.id not in failed]
        if time.monotonic() > deadline or run.abort.hurried or not entries:
            break
        time.sleep(_UNDO_PAUSE_S)


def _undo(run: Run, entry: Entry) -> bool:
    """Whether it makes sense to look at it again: a bug of ours would only come again, and so would the finding that a
    node has to stay out of service."""
    try:
        run.undo(entry)
    except Exception as error:
        # An intent of which no undo is told counts as unknown.
        run.problem(f"the undo of {entry.id} failed: {type(error).__name__}: {error}", "`gameday reap` tries again")
        return False
    return not isinstance(entry.undo, RestoreNode) or run.ledger.fault_on(entry.node) is Cleanliness.CLEAN


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
    if run.opened.servers is None:
        return
    for cost in run.opened.servers.costs():
        run.note(cost)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    run.note(OwnCost(cpu_s=time.process_time() - run.cpu_at_start_s, peak_rss_bytes=peak))
