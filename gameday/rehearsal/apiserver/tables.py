"""Tables: the columns kubectl prints, made here because kubectl asks the server for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from gameday.rehearsal.apiserver.resources import Resource
from gameday.rehearsal.apiserver.store import Stored

Json = dict[str, Any]
Cell = str | int
Cells = Callable[[Json], list[Cell]]

_NONE = "<none>"
_UNSET = "<unset>"


@dataclass(frozen=True)
class Columns:
    """Column titles (a leading + marks those only `-o wide` shows) and what fills them."""

    titles: tuple[str, ...]
    cells: Cells

    def definitions(self) -> list[Json]:
        """columnDefinitions of the Table."""
        return [
            {
                "name": title.lstrip("+"),
                "type": "string",
                "format": "name" if title == "Name" else "",
                "description": "",
                "priority": 1 if title.startswith("+") else 0,
            }
            for title in self.titles
        ]


def human(seconds: float) -> str:
    """A duration as kubectl shows it: 45s, 3m20s, 5h, 12d."""
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    # Up to which duration which units are shown (k8s.io/apimachinery/pkg/util/duration, HumanDuration).
    steps: tuple[tuple[int, str], ...] = (
        (120, f"{whole}s"),
        (600, _pair(minutes, "m", whole % 60, "s")),
        (3 * 3600, f"{minutes}m"),
        (8 * 3600, _pair(hours, "h", minutes % 60, "m")),
        (48 * 3600, f"{hours}h"),
        (8 * 86400, _pair(days, "d", hours % 24, "h")),
        (730 * 86400, f"{days}d"),
    )
    return next((text for limit, text in steps if whole < limit), _pair(days // 365, "y", days % 365, "d"))


def _pair(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


def since(stamp: str | None) -> str:
    """Age of a timestamp."""
    if not stamp:
        return "<unknown>"
    return human((datetime.now(UTC) - _time(stamp)).total_seconds())


def _time(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)


def _age(obj: Json) -> str:
    return since(obj["metadata"].get("creationTimestamp"))


def _name(obj: Json) -> str:
    name: str = obj["metadata"]["name"]
    return name


def _pairs(labels: Json | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


def _selector(selector: Json | None) -> str:
    terms = [f"{key}={value}" for key, value in sorted(((selector or {}).get("matchLabels") or {}).items())]
    for item in (selector or {}).get("matchExpressions") or []:
        terms.append(f"{item['key']} {item['operator'].lower()} ({','.join(item.get('values') or [])})")
    return ",".join(terms) or _NONE


def _containers(spec: Json | None) -> tuple[str, str]:
    containers = (spec or {}).get("containers") or []
    return ",".join(item["name"] for item in containers), ",".join(item.get("image", "") for item in containers)


def _condition(obj: Json, kind: str) -> Json:
    for condition in (obj.get("status") or {}).get("conditions") or []:
        if condition.get("type") == kind:
            found: Json = condition
            return found
    return {}


def _node(node: Json) -> list[Cell]:
    status, labels = node.get("status") or {}, node["metadata"].get("labels") or {}
    ready = _condition(node, "Ready").get("status")
    states = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    info = status.get("nodeInfo") or {}
    addresses = {item["type"]: item["address"] for item in status.get("addresses") or []}
    return [
        _name(node),
        ",".join(states),
        ",".join(roles) or _NONE,
        _age(node),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _container_state(status: Json, shown: str) -> str:
    state = status.get("state") or {}
    waiting, terminated = state.get("waiting") or {}, state.get("terminated")
    if waiting.get("reason"):
        return str(waiting["reason"])
    if terminated is not None:
        if terminated.get("reason"):
            return str(terminated["reason"])
        if terminated.get("signal"):
            return f"Signal:{terminated['signal']}"
        return f"ExitCode:{terminated.get('exitCode', 0)}"
    return shown


def pod_reason(pod: Json) -> str:
    """STATUS of a pod as kubectl prints it."""
    status = pod.get("status") or {}
    shown = status.get("reason") or status.get("phase", "Unknown")
    if _condition(pod, "PodScheduled").get("reason") == "SchedulingGated":
        shown = "SchedulingGated"
    running = False
    for container in reversed(status.get("containerStatuses") or []):
        shown = _container_state(container, shown)
        running = running or bool(container.get("ready") and "running" in (container.get("state") or {}))
    if shown == "Completed" and running:
        shown = "Running" if _condition(pod, "Ready").get("status") == "True" else "NotReady"
    if "deletionTimestamp" in pod["metadata"]:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(shown)


def _pod(pod: Json) -> list[Cell]:
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    states = status.get("containerStatuses") or []
    ready = sum(bool(item.get("ready")) and "running" in (item.get("state") or {}) for item in states)
    restarts = sum(item.get("restartCount", 0) for item in states)
    ends = [((item.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for item in states]
    last = max((end for end in ends if end), default=None)
    gates = spec.get("readinessGates") or []
    passed = sum(_condition(pod, gate["conditionType"]).get("status") == "True" for gate in gates)
    return [
        _name(pod),
        f"{ready}/{len(spec.get('containers') or [])}",
        pod_reason(pod),
        f"{restarts} ({since(last)} ago)" if restarts and last else restarts,
        _age(pod),
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        f"{passed}/{len(gates)}" if gates else _NONE,
    ]


def _job(job: Json) -> list[Cell]:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    wanted = spec.get("completions")
    shown = str(wanted) if wanted is not None else ("1" if spec.get("parallelism", 1) < 2 else "1 of many")
    if _condition(job, "Complete").get("status") == "True":
        state = "Complete"
    elif _condition(job, "Failed").get("status") == "True":
        state = "Failed"
    elif "deletionTimestamp" in job["metadata"]:
        state = "Terminating"
    elif _condition(job, "Suspended").get("status") == "True":
        state = "Suspended"
    else:
        state = "Running"
    start, end = status.get("startTime"), status.get("completionTime")
    took = human((_time(end) - _time(start)).total_seconds()) if start and end else since(start) if start else ""
    names, images = _containers((spec.get("template") or {}).get("spec"))
    selector = _selector(spec.get("selector"))
    return [_name(job), state, f"{status.get('succeeded', 0)}/{shown}", took, _age(job), names, images, selector]


def _daemonset(item: Json) -> list[Cell]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    counts = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady")
    more = ("updatedNumberScheduled", "numberAvailable")
    numbers = [status.get(name, 0) for name in (*counts, *more)]
    names, images = _containers(template)
    selector = _selector(spec.get("selector"))
    return [_name(item), *numbers, _pairs(template.get("nodeSelector")), _age(item), names, images, selector]


def _deployment(item: Json) -> list[Cell]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    names, images = _containers((spec.get("template") or {}).get("spec"))
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    return [_name(item), ready, updated, available, _age(item), names, images, _selector(spec.get("selector"))]


def _replicaset(item: Json) -> list[Cell]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    names, images = _containers((spec.get("template") or {}).get("spec"))
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [_name(item), *counts, _age(item), names, images, _selector(spec.get("selector"))]


def _statefulset(item: Json) -> list[Cell]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    names, images = _containers((spec.get("template") or {}).get("spec"))
    return [_name(item), f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}", _age(item), names, images]


def _event(event: Json) -> list[Cell]:
    about, series = event.get("involvedObject") or {}, event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or first
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent", "")
    count = series.get("count") or event.get("count") or 1
    return [
        since(last),
        event.get("type", ""),
        event.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        f"{component}, {source['host']}" if source.get("host") else component,
        (event.get("message") or "").strip(),
        since(first),
        count,
        _name(event),
    ]


def _pdb(pdb: Json) -> list[Cell]:
    spec, allowed = pdb.get("spec") or {}, (pdb.get("status") or {}).get("disruptionsAllowed", 0)
    return [
        _name(pdb),
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        allowed,
        _age(pdb),
    ]


def _service(item: Json) -> list[Cell]:
    spec = item.get("spec") or {}
    ports = [f"{port['port']}/{port.get('protocol', 'TCP')}" for port in spec.get("ports") or []]
    kind, address = spec.get("type", "ClusterIP"), spec.get("clusterIP") or _NONE
    return [_name(item), kind, address, _NONE, ",".join(ports) or _NONE, _age(item), _pairs(spec.get("selector"))]


def _cronjob(item: Json) -> list[Cell]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    last = since(status["lastScheduleTime"]) if status.get("lastScheduleTime") else _NONE
    zone = spec.get("timeZone") or _NONE
    suspended = str(bool(spec.get("suspend")))
    return [_name(item), spec.get("schedule", ""), zone, suspended, len(status.get("active") or []), last, _age(item)]


def _binding(item: Json) -> list[Cell]:
    ref, subjects = item.get("roleRef") or {}, item.get("subjects") or []
    named: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in subjects:
        full = f"{subject.get('namespace', '')}/{subject['name']}" if subject["kind"] == "ServiceAccount" else ""
        named.setdefault(subject["kind"], []).append(full or subject["name"])
    lists = [", ".join(named[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [_name(item), f"{ref.get('kind')}/{ref.get('name')}", _age(item), *lists]


def _created(item: Json) -> list[Cell]:
    return [_name(item), item["metadata"].get("creationTimestamp", "")]


_CONTAINER_TITLES = ("+Containers", "+Images", "+Selector")
_DEFAULT = Columns(("Name", "Age"), lambda obj: [_name(obj), _age(obj)])
_BINDING = Columns(("Name", "Role", "Age", "+Users", "+Groups", "+ServiceAccounts"), _binding)
_ROLE = Columns(("Name", "Created At"), _created)
_COLUMNS: dict[str, Columns] = {
    "nodes": Columns(
        ("Name", "Status", "Roles", "Age", "Version", "+Internal-IP", "+External-IP", "+OS-Image", "+Kernel-Version",
         "+Container-Runtime"), _node),
    "pods": Columns(
        ("Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"), _pod),
    "jobs.batch": Columns(("Name", "Status", "Completions", "Duration", "Age", *_CONTAINER_TITLES), _job),
    "cronjobs.batch": Columns(
        ("Name", "Schedule", "Timezone", "Suspend", "Active", "Last Schedule", "Age"), _cronjob),
    "daemonsets.apps": Columns(
        ("Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age",
         *_CONTAINER_TITLES), _daemonset),
    "deployments.apps": Columns(
        ("Name", "Ready", "Up-to-date", "Available", "Age", *_CONTAINER_TITLES), _deployment),
    "replicasets.apps": Columns(("Name", "Desired", "Current", "Ready", "Age", *_CONTAINER_TITLES), _replicaset),
    "replicationcontrollers": Columns(
        ("Name", "Desired", "Current", "Ready", "Age", *_CONTAINER_TITLES), _replicaset),
    "statefulsets.apps": Columns(("Name", "Ready", "Age", "+Containers", "+Images"), _statefulset),
    "events": Columns(
        ("Last Seen", "Type", "Reason", "Object", "+Subobject", "+Source", "Message", "+First Seen", "+Count",
         "+Name"), _event),
    "configmaps": Columns(
        ("Name", "Data", "Age"),
        lambda obj: [_name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), _age(obj)]),
    "secrets": Columns(
        ("Name", "Type", "Data", "Age"),
        lambda obj: [_name(obj), obj.get("type", ""), len(obj.get("data") or {}), _age(obj)]),
    "serviceaccounts": Columns(
        ("Name", "Secrets", "Age"), lambda obj: [_name(obj), len(obj.get("secrets") or []), _age(obj)]),
    "leases.coordination.k8s.io": Columns(
        ("Name", "Holder", "Age"),
        lambda obj: [_name(obj), (obj.get("spec") or {}).get("holderIdentity", ""), _age(obj)]),
    "namespaces": Columns(
        ("Name", "Status", "Age"), lambda obj: [_name(obj), (obj.get("status") or {}).get("phase", ""), _age(obj)]),
    "poddisruptionbudgets.policy": Columns(
        ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"), _pdb),
    "priorityclasses.scheduling.k8s.io": Columns(
        ("Name", "Value", "Global-Default", "Age", "PreemptionPolicy"),
        lambda obj: [_name(obj), obj["value"], str(bool(obj.get("globalDefault"))).lower(), _age(obj),
                     obj.get("preemptionPolicy", "")]),
    "services": Columns(
        ("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "+Selector"), _service),
    "roles.rbac.authorization.k8s.io": _ROLE,
    "clusterroles.rbac.authorization.k8s.io": _ROLE,
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Objects as rows; `include` is what each row carries along: Metadata, Object or None."""

    resource: Resource
    include: str = "Metadata"

    def one(self, stored: Stored) -> bytes:
        """A table of one row."""
        return self._table([stored], {"resourceVersion": str(stored.rv)})

    def many(self, items: list[Stored], meta: Json) -> bytes:
        """A table of all."""
        return self._table(items, meta)

    def bookmark(self, meta: Json) -> bytes:
        """A bookmark's table: no row but the object that carries the version."""
        row = {"cells": [], "object": {**self._kind(), "metadata": meta}}
        return orjson.dumps({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": [],
                             "rows": [row]})  # fmt: skip

    def _table(self, items: list[Stored], meta: Json) -> bytes:
        columns = _COLUMNS.get(self.resource.store_key, _DEFAULT)
        rows = [{"cells": columns.cells(item.obj), "object": self._object(item)} for item in items]
        table = {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": meta,
            "columnDefinitions": columns.definitions(),
            "rows": rows,
        }
        return orjson.dumps(table)

    def _kind(self) -> Json:
        if self.include == "Object":
            return {"kind": self.resource.kind, "apiVersion": self.resource.api_version}
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}

    def _object(self, stored: Stored) -> Json | None:
        if self.include == "None":
            return None
        if self.include == "Object":
            return {**self._kind(), **stored.obj}
        return {**self._kind(), "metadata": stored.obj["metadata"]}
