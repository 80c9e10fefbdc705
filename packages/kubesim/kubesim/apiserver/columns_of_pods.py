"""The columns of pods and nodes, with the rules of a pod's STATUS."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubesim.apiserver.cells import NONE, UNKNOWN, Cell, Columns, age, age_since, condition, name

Json = dict[str, Any]


def _node(node: Json) -> list[Cell]:
    status, labels = node.get("status") or {}, node["metadata"].get("labels") or {}
    ready = condition(node, "Ready").get("status")
    states = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)} | {
        labels.get("kubernetes.io/role", "")
    }
    info = status.get("nodeInfo") or {}
    kernel, architecture = info.get("kernelVersion") or UNKNOWN, info.get("architecture")
    return [
        name(node),
        ",".join(states),
        ",".join(sorted(roles - {""})) or NONE,
        age(node),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        f"{kernel} ({architecture})" if architecture else kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _address(status: Json, kind: str) -> str:
    return next((item["address"] for item in status.get("addresses") or [] if item["type"] == kind), NONE)


def _ended(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _restartable(pod: Json) -> set[str]:
    """Return the names of the init containers that keep running (sidecars)."""
    found = (pod.get("spec") or {}).get("initContainers") or []
    return {item["name"] for item in found if item.get("restartPolicy") == "Always"}


def _initializing(pod: Json) -> str:
    """Return the STATUS of a pod that an init container holds up, else empty."""
    sidecars, status = _restartable(pod), pod.get("status") or {}
    for index, item in enumerate(status.get("initContainerStatuses") or []):
        state = item.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None and not terminated.get("exitCode", 0):
            continue
        if item["name"] in sidecars and item.get("started"):
            continue
        if terminated is not None:
            return f"Init:{_ended(terminated)}"
        if waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len((pod.get('spec') or {}).get('initContainers') or [])}"
    return ""


def _main_status(pod: Json, shown: str) -> str:
    """Return the STATUS after initialization, by the first container that has a reason to show."""
    running, failed = False, ""
    for item in reversed((pod.get("status") or {}).get("containerStatuses") or []):
        state = item.get("state") or {}
        terminated = state.get("terminated")
        if (state.get("waiting") or {}).get("reason"):
            shown = state["waiting"]["reason"]
        elif terminated is not None:
            shown = _ended(terminated)
            failed = shown if terminated.get("exitCode", 0) else failed
        elif item.get("ready") and "running" in state:
            running = True
    if shown != "Completed":
        return shown
    if running and condition(pod, "Ready").get("status") == "True":
        return "Running"
    return failed or ("NotReady" if running else shown)


def pod_reason(pod: Json) -> str:
    """Return the STATUS of a pod as kubectl prints it."""
    status = pod.get("status") or {}
    shown = str(status.get("reason") or status.get("phase", ""))
    if condition(pod, "PodScheduled").get("reason") == "SchedulingGated":
        shown = "SchedulingGated"
    held_up = _initializing(pod)
    initialized = not held_up or condition(pod, "Initialized").get("status") == "True"
    shown = _main_status(pod, held_up or shown) if initialized else held_up
    if "deletionTimestamp" in pod["metadata"]:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return shown


def _last_end(states: Iterable[Json]) -> str | None:
    ends = (((item.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for item in states)
    return max((end for end in ends if end), default=None)


def _restarts(counted: list[Json]) -> str:
    restarts, last = sum(item.get("restartCount", 0) for item in counted), _last_end(counted)
    return f"{restarts} ({age_since(last)} ago)" if restarts and last else str(restarts)


def _pod(pod: Json) -> list[Cell]:
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    sidecars = _restartable(pod)
    first, main = status.get("initContainerStatuses") or [], status.get("containerStatuses") or []
    beside = [item for item in first if item["name"] in sidecars]
    waiting = _initializing(pod) and condition(pod, "Initialized").get("status") != "True"
    ready = sum(bool(item.get("ready") and item.get("started")) for item in beside)
    if not waiting:
        ready += sum(bool(item.get("ready")) and "running" in (item.get("state") or {}) for item in main)
    gates = spec.get("readinessGates") or []
    passed = sum(condition(pod, gate["conditionType"]).get("status") == "True" for gate in gates)
    addresses = status.get("podIPs") or [{}]
    return [
        name(pod),
        f"{ready}/{len(spec.get('containers') or []) + len(sidecars)}",
        pod_reason(pod),
        _restarts(first if waiting else [*beside, *main]),
        age(pod),
        addresses[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _completed(pod: Json) -> Json:
    """Return the fields that mark a pod as ended, so that kubectl can hide it."""
    phase = (pod.get("status") or {}).get("phase")
    if phase not in ("Succeeded", "Failed"):
        return {}
    how = "has completed successfully" if phase == "Succeeded" else "failed"
    mark = {"type": "Completed", "status": "True", "reason": phase, "message": f"The pod {how}."}
    return {"conditions": [mark]}


COLUMNS: dict[str, Columns] = {
    "nodes": Columns(
        (
            "Name", "Status", "Roles", "Age", "Version", "+Internal-IP", "+External-IP", "+OS-Image",
            "+Kernel-Version", "+Container-Runtime",
        ),
        _node,
    ),
    "pods": Columns(
        ("Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"),
        _pod,
        _completed,
    ),
}  # fmt: skip
