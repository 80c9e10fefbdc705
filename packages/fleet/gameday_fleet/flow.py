"""Probe idle GPUs, a few nodes at a time, and show how alike they are and which ones hold jobs up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.client.schemas.objects import State
from pydantic import Field

from gameday.documents.fields import Duration
from gameday.errors import RefusedError
from gameday.flows.attempts import stop_when_suspended
from gameday.flows.choices import source_of
from gameday.flows.cluster import load_cluster
from gameday.flows.hooks import reap_flow_run
from gameday.flows.invocation import invocation, occasion
from gameday.flows.judged_state import judged_state
from gameday.flows.schedule import refuse_overdue
from gameday.flows.season import refused_state
from gameday.history.room import refused_where_not_written
from gameday.ledger.entries import Header
from gameday.run.record import new_run_id
from gameday.runs.play import open_season
from gameday.runs.season_record import SeasonResult
from gameday.tasks.reaped_runs import notify_reaped
from gameday.values.nodes import NodeRole
from gameday.values.results import Cleanliness, Trigger
from gameday_fleet.labels import why_labels_do_not_fit
from gameday_fleet.permission import Permission
from gameday_fleet.record import FleetRecord, last_run_before
from gameday_fleet.task import judge_probes, label_nodes, probe_fleet

_LOAD = timedelta(seconds=30)
_FEWER_LABELS = (
    "set gpu_class_labels: false in the profile; or measure a part of the nodes: kubectl label node <node> "
    "example.com/fleet=part-1, and opt_in_label: example.com/fleet=part-1 in a profile for that part"
)


@flow(
    name="fleet",
    flow_run_name="fleet probes ({trigger})",
    persist_result=False,
    validate_parameters=True,
    on_cancellation=[reap_flow_run],
    on_crashed=[reap_flow_run],
)
def fleet(
    profile: str | None = None,
    profiles: dict[str, str] | None = None,
    at_once: Annotated[int, Field(ge=1, le=100)] = 4,
    load: Duration | None = None,
    against: str | None = None,
    reports: str = "reports",
    trigger: Trigger = "manual",
    fleet_id: str | None = None,
    command: str | None = None,
) -> State[SeasonResult]:
    """Measure every idle GPU that opted in, never a busy one; name the slow ones and what they cost.

    Args:
        profile: Cluster profile's path, or block:NAME; none: GAMEDAY_* of the environment.
        profiles: Profiles by the clusters' names that a form offers; `gameday deploy` sets it.
        at_once: The most nodes to measure at the same time, 1 to 100.
        load: Time for which each GPU computes before it is measured, 2s to 1h. Empty: 30s.
        against: Folder of an earlier fleet run to compare with. Empty: the newest of this cluster in `reports`.
        reports: Folder the run's own folder is made in.
        trigger: The reason why it is run.
        fleet_id: Name of the run; none: from the time.
        command: Shell line that runs the same again, for the page.
    """
    try:
        cluster = load_cluster(source_of(profile, profiles))
    except RefusedError as error:
        return refused_state(error)
    id = fleet_id or f"fleet-{new_run_id()}"
    folder, permission = Path(reports) / id, Permission(cluster)
    started = datetime.now(UTC)
    asked = invocation(trigger, command or "gameday fleet")
    record = FleetRecord(
        id=id,
        cluster=cluster.name,
        trigger=occasion(trigger),
        command=asked.command,
        at_once=at_once,
        seconds=(load or _LOAD).total_seconds(),
        started=started,
    )
    try:
        refuse_overdue(trigger)
        if why := permission.why_not():
            raise RefusedError(why, "run it when the guardrail allows it")
        with open_season(id, cluster, partial(notify_reaped, cluster, reports=Path(reports))) as opened:
            stop_when_suspended(opened.abort)
            key, _, value = cluster.required_label(NodeRole.GPU).partition("=")
            candidates = opened.kubernetes.all_candidates({key: value})
            nodes = [one.name for one in candidates]
            if not nodes:
                label = cluster.required_label(NodeRole.GPU)
                raise RefusedError(f"no node carries {label}", f"kubectl label node <node> {label} lets probes use it")
            if cluster.gpu_class_labels and (why := why_labels_do_not_fit(nodes)):
                raise RefusedError(why, _FEWER_LABELS)
            earlier = against or last_run_before(Path(reports), record)
            record = record.model_copy(
                update={
                    "nodes": len(nodes),
                    "virtual_nodes": sum(one.virtual for one in candidates),
                    "against": str(Path(earlier).resolve()) if earlier else None,
                }
            )
            with refused_where_not_written(folder):
                record.save(folder)
            header = Header.of_this_process(id, "fleet", started, asked.process_flow_run)
            left = probe_fleet(opened, record, nodes, header, permission, folder)
            labels = None
            if cluster.gpu_class_labels and left is Cleanliness.CLEAN and not opened.stopped:
                labels = label_nodes(opened, header, folder)
                left = labels.cleanliness
            why = opened.stopped or (f"labels: {labels.stopped}" if labels and labels.stopped else "")
            record.as_ended(why, left, labels).save(folder)
    except RefusedError as error:
        return refused_state(error)
    finally:
        permission.close()
    judged = judge_probes(folder)
    result = SeasonResult(exit_code=judged.fleet.exit_code, why=judged.fleet.headline).with_also(judged.unwritten)
    return judged_state(result.exit_code, result.why, result)
