"""The columns that kubectl prints of each kind; those of pods and nodes are in a module of their own.

Kinds that are not here have a name and an age, like kinds without columns of their own on a real server.
"""

from __future__ import annotations

from typing import Any

from kubesim.apiserver import columns_of_pods
from kubesim.apiserver.cells import (
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
# STATUS is the first of these conditions that holds.
_JOB_STATES = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")


def _event(event: Json) -> list[Cell]:
    about, series = event.get("involvedObject") or {}, event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or first
    return [
        age_since(last),
        event.get("type", ""),
        event.get("reason", ""),
        "/".join(part for part in (about.get("kind", "").lower(), about.get("name")) if part),
        about.get("fieldPath", ""),
        _event_source(event),
        (event.get("message") or "").strip(),
        age_since(first),
        series.get("count") or event.get("count") or 1,
        name(event),
    ]


def _event_source(event: Json) -> str:
    source = event.get("source") or {}
    who = (
        source.get("component") or event.get("reportingComponent"),
        source.get("host") or event.get("reportingInstance"),
    )
    return ", ".join(part for part in who if part)


def _pdb(pdb: Json) -> list[Cell]:
    spec, allowed = pdb.get("spec") or {}, (pdb.get("status") or {}).get("disruptionsAllowed", 0)
    bounds = [str(spec.get(bound, "N/A")) for bound in ("minAvailable", "maxUnavailable")]
    return [name(pdb), *bounds, allowed, age(pdb)]


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


DEFAULT = Columns(("Name", "Age"), lambda obj: [name(obj), age(obj)])
_EVENT_TITLES = (
    "Last Seen", "Type", "Reason", "Object", "+Subobject", "+Source", "Message", "+First Seen", "+Count", "+Name",
)  # fmt: skip
_POD_TITLES = ("+Containers", "+Images", "+Selector")
COLUMNS: dict[str, Columns] = {
    **columns_of_pods.COLUMNS,
    "configmaps": Columns(
        ("Name", "Data", "Age"),
        lambda obj: [name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), age(obj)],
    ),
    "daemonsets.apps": Columns(
        (
            "Name", "Desired:integer", "Current:integer", "Ready:integer", "Up-to-date:integer", "Available:integer",
            "Node Selector", "Age", *_POD_TITLES,
        ),
        _daemonset,
    ),
    "events": Columns(_EVENT_TITLES, _event),
    "jobs.batch": Columns(("Name", "Status", "Completions", "Duration", "Age", *_POD_TITLES), _job),
    "leases.coordination.k8s.io": Columns(
        ("Name", "Holder", "Age"),
        lambda obj: [name(obj), (obj.get("spec") or {}).get("holderIdentity", ""), age(obj)],
    ),
    "namespaces": Columns(
        ("Name", "Status", "Age"), lambda obj: [name(obj), (obj.get("status") or {}).get("phase", ""), age(obj)]
    ),
    "poddisruptionbudgets.policy": Columns(
        ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"), _pdb
    ),
    "secrets": Columns(
        ("Name", "Type", "Data", "Age"),
        lambda obj: [name(obj), obj.get("type", ""), len(obj.get("data") or {}), age(obj)],
    ),
}  # fmt: skip
