"""The columns of what makes pods: Jobs, DaemonSets, Deployments and their kin."""

from __future__ import annotations

from typing import Any

from kubesim.apiserver.cells import (
    NONE,
    Cell,
    Columns,
    age,
    age_since,
    condition,
    container_names,
    human_duration,
    label_pairs,
    name,
    selector_text,
)
from kubesim.clock import parse_time

Json = dict[str, Any]
# The first of these conditions that holds is the STATUS.
_JOB_STATES = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")


def _template(obj: Json) -> Json:
    found: Json = (obj.get("spec") or {}).get("template") or {}
    return found


def _job(job: Json) -> list[Cell]:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    wanted, parallel = spec.get("completions"), spec.get("parallelism", 0)
    shown = str(wanted) if wanted is not None else (f"1 of {parallel}" if parallel > 1 else "1")
    start, end = status.get("startTime"), status.get("completionTime")
    took = (
        human_duration((parse_time(end) - parse_time(start)).total_seconds())
        if start and end
        else age_since(start)
        if start
        else ""
    )
    done = f"{status.get('succeeded', 0)}/{shown}"
    return [
        name(job),
        _job_state(job),
        done,
        took,
        age(job),
        *container_names(_template(job).get("spec")),
        selector_text(spec.get("selector")),
    ]


def _job_state(job: Json) -> str:
    holds = [kind for kind in _JOB_STATES if condition(job, kind).get("status") == "True"]
    if "deletionTimestamp" in job["metadata"] and not {"Complete", "Failed"} & {*holds}:
        return "Terminating"
    return holds[0] if holds else "Running"


def _cronjob(item: Json) -> list[Cell]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    last = age_since(status["lastScheduleTime"]) if status.get("lastScheduleTime") else NONE
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    return [
        name(item),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        str(bool(spec.get("suspend"))),
        len(status.get("active") or []),
        last,
        age(item),
        *container_names((job.get("template") or {}).get("spec")),
        selector_text(job.get("selector")),
    ]


def _daemonset(item: Json) -> list[Cell]:
    status, template = item.get("status") or {}, _template(item).get("spec") or {}
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return [
        name(item),
        *(status.get(count, 0) for count in counts),
        label_pairs(template.get("nodeSelector")),
        age(item),
        *container_names(template),
        selector_text(item["spec"].get("selector")),
    ]


def _deployment(item: Json) -> list[Cell]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    rest = (*container_names(_template(item).get("spec")), selector_text(spec.get("selector")))
    return [name(item), ready, updated, available, age(item), *rest]


def _replicas(item: Json) -> list[Cell]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    return [
        name(item),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age(item),
        *container_names(_template(item).get("spec")),
    ]


def _statefulset(item: Json) -> list[Cell]:
    ready = f"{(item.get('status') or {}).get('readyReplicas', 0)}/{(item.get('spec') or {}).get('replicas', 0)}"
    return [name(item), ready, age(item), *container_names(_template(item).get("spec"))]


def _revision(item: Json) -> list[Cell]:
    owners = [owner for owner in item["metadata"].get("ownerReferences") or [] if owner.get("controller")]
    shown = NONE
    if owners:
        group = owners[0]["apiVersion"].rpartition("/")[0]
        shown = f"{owners[0]['kind'].lower()}{f'.{group}' if group else ''}/{owners[0]['name']}"
    return [name(item), shown, item.get("revision", 0), age(item)]


_POD_TITLES = ("+Containers", "+Images", "+Selector")
_REPLICA_TITLES = ("Name", "Desired:integer", "Current:integer", "Ready:integer", "Age", *_POD_TITLES)
COLUMNS: dict[str, Columns] = {
    "jobs.batch": Columns(("Name", "Status", "Completions", "Duration", "Age", *_POD_TITLES), _job),
    "cronjobs.batch": Columns(
        (
            "Name", "Schedule", "Timezone", "Suspend:boolean", "Active:integer", "Last Schedule", "Age", *_POD_TITLES,
        ),
        _cronjob,
    ),
    "daemonsets.apps": Columns(
        (
            "Name", "Desired:integer", "Current:integer", "Ready:integer", "Up-to-date:integer", "Available:integer",
            "Node Selector", "Age", *_POD_TITLES,
        ),
        _daemonset,
    ),
    "deployments.apps": Columns(("Name", "Ready", "Up-to-date", "Available", "Age", *_POD_TITLES), _deployment),
    "replicasets.apps": Columns(
        _REPLICA_TITLES, lambda obj: [*_replicas(obj), selector_text((obj.get("spec") or {}).get("selector"))]
    ),
    "statefulsets.apps": Columns(("Name", "Ready", "Age", "+Containers", "+Images"), _statefulset),
    "controllerrevisions.apps": Columns(("Name", "Controller", "Revision", "Age"), _revision),
}  # fmt: skip
