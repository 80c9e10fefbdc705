"""Open a run: connect, take the cluster's lease, undo what dead runs left, and begin the ledger.

`open_run` closes the run when its block ends. `flows/game_day.py` has the whole life of a run.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial

from gameday import __version__
from gameday.clock import Clock
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.pods import PodFollower
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.virtual_cluster import why_ended
from gameday.errors import AdapterError, LeaseHeldError, RefusedError, SeasonGoneError
from gameday.guard.doctor.after_run import ask_after_run
from gameday.history.events import AlertChosen, DetectorConsulted, Refused, RunStarted
from gameday.ledger.entries import Header
from gameday.ledger.lease import CLUSTER_LEASE, Leases, lease_duration, lease_refusal
from gameday.ledger.ledger import Ledger
from gameday.lifecycle.closing import (
    Closing,
    close_ledger,
    insist,
    look_last,
    note_costs,
    note_steps_not_reached,
    save_frames,
    unless_ended,
)
from gameday.plain_file import not_written
from gameday.plan.models import Plan
from gameday.reaper.excluded_nodes import reap_before_start
from gameday.reaper.histories import describe_reap, note_reaped
from gameday.reaper.packages import check_packages
from gameday.reaper.reap import ReapResult
from gameday.run.detection_chain import DetectionChain
from gameday.run.node_watch import NodeWatch
from gameday.run.pod_states import PodStates
from gameday.run.quarantine import QuarantineListener
from gameday.run.record import RunRecord, folder_of_run
from gameday.run.run import Run
from gameday.run.run_ledger import RunLedger
from gameday.run.servers import Servers
from gameday.values.alert_families import MEANINGS
from gameday.values.results import Trigger


@dataclass(frozen=True)
class Invocation:
    """The reason why a run was started, and the means."""

    trigger: Trigger
    command: str
    """A shell line that starts the same run again, for the report."""
    flow_run: str | None = None
    """Prefect's id of the run's own flow run; None outside Prefect."""
    process_flow_run: str | None = None
    """Prefect's id of the flow run for which this process was started; its hooks find by it what the process left."""


@contextmanager
def open_run(
    record: RunRecord,
    profile: ClusterProfile,
    invocation: Invocation,
    connect: Callable[[ClusterProfile, Clock], Servers] = Servers,
) -> Iterator[Run]:
    """Open a run, and close it when the block ends.

    Args:
        record: The run's identity, plan and history.
        profile: The cluster.
        invocation: Why and how the run was started.
        connect: Makes the adapters of the cluster's servers, which use the run's clock.

    Yields:
        The run. A member of a season is covered by the season's lease, and uses only the nodes it was given.

    Raises:
        RefusedError: The cluster is not fit, or another run holds it. It is in the history, and nothing was changed.
    """
    # Signals cover all of it: one between the opening and the undo would end the run without the undo.
    with record.abort.on_signals():
        closing = Closing(record)
        try:
            try:
                run = _open(record, profile, invocation, closing, connect)
            except RefusedError as error:
                record.note(Refused(why=error.why, hint=error.hint))
                raise
            yield run
        finally:
            closing.add("note the steps that were not reached", partial(note_steps_not_reached, record))
            insist(closing.close)


def _open(
    record: RunRecord,
    profile: ClusterProfile,
    invocation: Invocation,
    closing: Closing,
    connect: Callable[[ClusterProfile, Clock], Servers],
) -> Run:
    if why := why_ended(profile.rehearsal):  # the next run of a season need not ask a server that is gone
        raise RefusedError(why, "start the virtual cluster again")
    try:
        servers = connect(profile, record.clock)
        closing.add("close the servers", servers.close)
        closing.add("note the costs", partial(note_costs, record, servers))
        _note_start(record, profile, servers.kubernetes, invocation)
        doctor = partial(ask_after_run, record, profile, servers)
        closing.add("ask doctor why the fault was not noticed", partial(unless_ended, profile.rehearsal, doctor))
        _check_dangers(record.plan, profile)
        check_packages(record.plan, servers.kubernetes)
        if record.loaded.from_detector:
            record.note(DetectorConsulted(**asdict(record.loaded.from_detector)))
        _note_chosen_alerts(record)
        for warning in record.loaded.detector_warnings:
            record.problem(f"detector {warning.detector}: {warning.what}", warning.fix)
        leases = _take_lease(record, servers.kubernetes, closing)
        return _assemble(record, profile, servers, leases, invocation, closing)
    except LeaseHeldError as error:
        raise lease_refusal(error) from None
    except SeasonGoneError as error:
        raise RefusedError(str(error), "a season's game-days run within it; run this plan by itself") from None
    except AdapterError as error:
        raise RefusedError(f"{error.url}: {error.cause}", error.hint) from None


def _assemble(
    record: RunRecord,
    profile: ClusterProfile,
    servers: Servers,
    leases: Leases,
    invocation: Invocation,
    closing: Closing,
) -> Run:
    """Follow our own pods, reap, and build the run from its parts."""
    kubernetes, pod_states = servers.kubernetes, PodStates(record.clock)
    pods = PodFollower(
        kubernetes, record.id, partial(pod_states.add_own_pod, profile.namespace), of_every_run=record.member is None
    )
    pods.__enter__()
    closing.add("stop following the pods", partial(pods.__exit__, None, None, None))
    pods.require_synced()
    excluded: Mapping[str, str] = {}
    if record.member is None:
        excluded = reap_before_start(kubernetes, record.id, partial(_note_reaped, record), pods.pods_of_other_runs())
    header = Header.of_this_process(record.id, record.plan.name, record.started, invocation.process_flow_run)
    ledger = RunLedger(record, kubernetes, Ledger(kubernetes, header), leases, pods)
    close = partial(close_ledger, record, ledger)
    closing.add("close the ledger", partial(unless_ended, profile.rehearsal, close))
    chain = DetectionChain(record.note)
    listener = QuarantineListener(record, chain, ledger.cordons, profile.quarantine_taint_keys)
    nodes = NodeWatch(kubernetes, record.id, record.note, pod_states, pods, listener)
    closing.add("stop following the nodes", nodes.stop)
    background = ExitStack()
    closing.add("stop what runs in the background", background.close)
    run = Run(
        record=record,
        profile=profile,
        servers=servers,
        nodes=nodes,
        leases=leases,
        pods=pods,
        ledger=ledger,
        chain=chain,
        excluded_nodes=excluded,
        background=background,
    )
    closing.add("save the frames", partial(save_frames, run))
    last = partial(look_last, run)
    closing.add("look at the targets for the last time", partial(unless_ended, profile.rehearsal, last))
    return run


def _note_start(record: RunRecord, profile: ClusterProfile, kubernetes: Kubernetes, invocation: Invocation) -> None:
    """Ask the cluster for its identity, which is the run's first request. Raises AdapterError."""
    identity = kubernetes.identity()
    record.note(
        RunStarted(
            run_id=record.id,
            plan_name=record.plan.name,
            plan_sha256=record.loaded.sha256,
            gameday_version=__version__,
            trigger=invocation.trigger,
            operator=getpass.getuser(),
            cluster=f"{profile.name} ({identity.server})",
            cluster_uid=identity.uid,
            cluster_name=profile.name,
            cluster_id=profile.identity or identity.uid,
            server_version=identity.version,
            role=record.plan.fault.runs_on,
            flow_run_id=invocation.flow_run,
            command=invocation.command,
            virtual=profile.is_virtual,
            outage_terms=profile.outage_terms,
        )
    )


def _note_chosen_alerts(record: RunRecord) -> None:
    """Note the rule chosen for each alert that the plan expects by its meaning."""
    for alert in record.plan.expect.alerts:
        rules = MEANINGS[alert.meaning] if alert.meaning else ()
        if rule := next((rule for rule in rules if rule.alert == alert.name), None):
            record.note(AlertChosen(meaning=str(alert.meaning), alert=alert.name, source=rule.source))


def _check_dangers(plan: Plan, profile: ClusterProfile) -> None:
    """Refuse a dangerous fault that this cluster does not allow or cannot bear, because plans are copied."""
    for fault, why in plan.dangers().items():
        if fault not in profile.allow_dangerous:
            raise RefusedError(
                f"profile {profile.name} does not allow the dangerous fault {fault} ({why})",
                f"add {fault} to the profile's allow_dangerous, if this cluster may bear it",
            )
    if why := plan.fault.why_not_here(profile.namespace, is_lab=profile.lab_control is not None):
        hint = f"gameday rehearse {plan.name} (docs/control-plane.md, On a real cluster, and on the lab only)"
        raise RefusedError(why, hint)


def _take_lease(record: RunRecord, kubernetes: Kubernetes, closing: Closing) -> Leases:
    """Take the cluster's lease, or rely on the season's.

    Raises:
        LeaseHeldError: Another run holds it.
        SeasonGoneError: The season does not hold it.
        AdapterError: The cluster does not answer.
    """
    leases = Leases(
        kubernetes,
        record.id,
        partial(record.abort.request, "guard"),
        lease_duration(kubernetes.profile.lease_duration_s, record.plan.fault.api_server_away_for),
        record.abort.sleep,
    )
    closing.add("release the leases", partial(unless_ended, kubernetes.profile.rehearsal, leases.release))
    if record.member:
        leases.rely_on(record.member.season)
    else:
        leases.acquire(CLUSTER_LEASE)
        leases.keep_renewing()
    return leases


def _note_reaped(record: RunRecord, result: ReapResult) -> None:
    """Note what was undone of dead runs, in this run's history and in theirs."""
    for one in result.reaped:
        record.problem(
            f"run {one.run_id} left open: {one.entry.act} ({one.entry.object}); after the reap it is {one.cleanliness}"
        )
    for run_id in result.changed:
        folder = folder_of_run(record.folder.parent, run_id)
        try:
            note_reaped(folder, result, describe_reap(f"run {record.id}", result, run_id), record.clock)
        except OSError as error:
            record.problem(f"the history of run {run_id} cannot be written: {not_written(error, folder)}")
