"""Taints and tolerations, and how to change only one's own taints."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from kubesim.client import Object
from kubesim.clock import parse_time_if_any, rfc3339

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def tolerates(toleration: Object, taint: Object) -> bool:
    """Return True if the toleration covers the taint (Toleration.ToleratesTaint); an empty key or effect means any."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
        case _:
            return False


def untolerated(taints: Iterable[Object], tolerations: Collection[Object], effects: Collection[str]) -> Object | None:
    """Return the first taint with one of the effects that no toleration covers."""
    for taint in taints:
        if taint["effect"] in effects and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def node_taints(node: Object) -> list[Object]:
    return (node.get("spec") or {}).get("taints") or []


def same_taint(left: Object, right: Object) -> bool:
    """Return True if two taints have the same key and effect, by which Kubernetes tells them apart."""
    return bool(left["key"] == right["key"] and left["effect"] == right["effect"])


def with_own_taints(
    taints: list[Object], wanted: Collection[Object], own_keys: Collection[str], now: datetime
) -> list[Object] | None:
    """Return the taint list with exactly `wanted` among `own_keys` and all others untouched; None if nothing changes.

    Own taints that stay keep their timeAdded, so tolerationSeconds does not start again.
    """
    kept = [t for t in taints if t["key"] not in own_keys or any(same_taint(t, w) for w in wanted)]
    missing = [w for w in wanted if not any(same_taint(t, w) for t in kept)]
    if not missing and len(kept) == len(taints):
        return None
    return kept + [{**taint, "timeAdded": rfc3339(now)} for taint in missing]


def eviction_time(pod: Object, taints: Iterable[Object], seen: datetime) -> datetime | None:
    """Return the time at which NoExecute taints end a pod; None for never.

    A tolerationSeconds counts from the taint's timeAdded (if it has none, from `seen`, when it was first noticed) or
    from the pod's creation, whichever is later. For each taint the first toleration that covers it decides, as in
    kube-controller-manager's taint eviction.
    """
    created = parse_time_if_any(pod["metadata"].get("creationTimestamp")) or seen
    tolerations = pod["spec"].get("tolerations") or ()
    end: datetime | None = None
    for taint in taints:
        if taint["effect"] != NO_EXECUTE:
            continue
        start = max(parse_time_if_any(taint.get("timeAdded")) or seen, created)
        toleration = next((each for each in tolerations if tolerates(each, taint)), None)
        if toleration is None:
            return seen
        seconds = toleration.get("tolerationSeconds")
        if seconds is None:
            continue
        candidate = start + timedelta(seconds=max(0, int(seconds)))
        end = candidate if end is None else min(end, candidate)
    return end
