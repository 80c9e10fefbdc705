"""The scheduler's decisions, as pure functions: feasible nodes for a pod and their ranking.

Pods that ask for the same thing share one ranking of the nodes. A ranking is corrected only for nodes that changed
since it was last used, so placing a thousand like pods on a thousand nodes costs about a thousand node evaluations,
not a million.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import orjson

from kubesim.client import Object
from kubesim.controllers.requests import pod_requests
from kubesim.controllers.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    UNSCHEDULABLE,
    node_taints,
    tolerates,
    untolerated,
)
from kubesim.quantity import amounts
from kubesim.selectors import matches_node, matches_node_term, node_affinity, only_nodes

GPU = "nvidia.com/gpu"
# Weights of kube-scheduler's default profile: TaintToleration 3, NodeAffinity 2, NodeResourcesFit 1, each for 0 to 100.
TAINT_WEIGHT = 300
AFFINITY_WEIGHT = 2
RANKINGS_KEPT = 64

# kube-scheduler's own messages, by plugin.
WAS_UNSCHEDULABLE = "node(s) were unschedulable"
NO_AFFINITY_MATCH = "node(s) didn't match Pod's node affinity/selector"
NOT_AMONG_PINNED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"


@dataclass(frozen=True)
class Demand:
    """A pod's demands on a node; equal demands share a ranking (`key`)."""

    spec: Object = field(repr=False)

    @cached_property
    def requests(self) -> dict[str, int]:
        return pod_requests(self.spec)

    @cached_property
    def tolerations(self) -> list[Object]:
        return self.spec.get("tolerations") or []

    @cached_property
    def pinned(self) -> frozenset[str] | None:
        return only_nodes(self.spec)

    @cached_property
    def key(self) -> bytes:
        parts = [self.requests, self.tolerations, self.spec.get("nodeSelector"), node_affinity(self.spec)]
        return orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)


@dataclass
class NodeUsage:
    """A node with what is reserved on it, kept up to date pod by pod."""

    node: Object
    allocatable: dict[str, int]
    used: dict[str, int] = field(default_factory=dict)

    def reserve(self, requests: Mapping[str, int], sign: int = 1) -> None:
        for resource, value in requests.items():
            self.used[resource] = self.used.get(resource, 0) + sign * value

    def free(self, resource: str) -> int:
        return self.allocatable.get(resource, 0) - self.used.get(resource, 0)


def refusals(demand: Demand, room: NodeUsage) -> tuple[str, ...]:
    """Return why the node cannot take the pod, by the first of kube-scheduler's filters that refuses; else empty."""
    spec = room.node.get("spec") or {}
    cordon = {"key": UNSCHEDULABLE, "effect": NO_SCHEDULE}
    if spec.get("unschedulable") and not any(tolerates(each, cordon) for each in demand.tolerations):
        return (WAS_UNSCHEDULABLE,)
    taint = untolerated(node_taints(room.node), demand.tolerations, (NO_SCHEDULE, NO_EXECUTE))
    if taint is not None:
        return (f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value') or ''}}}",)
    if not matches_node(demand.spec, room.node):
        return (NO_AFFINITY_MATCH,)
    return tuple(
        "Too many pods" if resource == "pods" else f"Insufficient {resource}"
        for resource, value in demand.requests.items()
        if value > room.free(resource)
    )


def score(demand: Demand, room: NodeUsage) -> float:
    """Return how well a feasible node suits the pod: higher is better.

    It is the free share, in percent, of the scarce resource (GPUs if the pod wants any, else cpu and memory), plus
    preferred affinity, minus untolerated PreferNoSchedule taints.
    """
    scarce = (GPU,) if demand.requests.get(GPU) else ("cpu", "memory")
    shares = [
        (room.free(resource) - demand.requests.get(resource, 0)) / room.allocatable[resource]
        for resource in scarce
        if room.allocatable.get(resource)
    ]
    room_score = 100 * sum(shares) / len(shares) if shares else 0.0
    soft = [t for t in node_taints(room.node) if t["effect"] == PREFER_NO_SCHEDULE]
    disliked = sum(1 for taint in soft if not any(tolerates(each, taint) for each in demand.tolerations))
    preferences = node_affinity(demand.spec).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    liked = sum(int(p["weight"]) for p in preferences if matches_node_term(p["preference"], room.node))
    return room_score + AFFINITY_WEIGHT * liked - TAINT_WEIGHT * disliked


class Ranking:
    """The nodes in order for one demand, corrected lazily for the nodes in `stale`."""

    def __init__(self, demand: Demand, names: Iterable[str]) -> None:
        self.demand = demand
        self.stale = set(names)
        self.refused: dict[str, tuple[str, ...]] = {}
        self._scores: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def best(self, rooms: Mapping[str, NodeUsage]) -> str | None:
        """Return the best feasible node; of equal ones, the first by name."""
        for name in self.stale:
            self.refused.pop(name, None)
            self._scores.pop(name, None)
            room = rooms.get(name)
            if room is None:
                continue
            if reasons := refusals(self.demand, room):
                self.refused[name] = reasons
            else:
                self._scores[name] = score(self.demand, room)
                heapq.heappush(self._heap, (-self._scores[name], name))
        self.stale.clear()
        if len(self._heap) > 4 * len(self._scores) + 64:  # outdated entries would pile up for as long as we run
            self._heap = [(-value, name) for name, value in self._scores.items()]
            heapq.heapify(self._heap)
        while self._heap:
            negative, name = self._heap[0]
            if self._scores.get(name) == -negative:
                return name
            heapq.heappop(self._heap)
        return None


def unschedulable_message(reasons: Iterable[tuple[str, ...]], total: int) -> str:
    """Return kube-scheduler's FitError: how many of `total` nodes refused the pod, and for which reasons."""
    if total == 0:
        return "no nodes available to schedule pods"
    counts = Counter(reason for node_reasons in reasons for reason in node_reasons)
    histogram = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{total} nodes are available: {', '.join(histogram)}."


class ClusterUsage:
    """All nodes with their reservations, and the rankings over them."""

    def __init__(self) -> None:
        self.rooms: dict[str, NodeUsage] = {}
        self._held: dict[str, dict[str, dict[str, int]]] = {}  # node name → pod uid → requests
        self._where: dict[str, str] = {}  # pod uid → node name
        self._rankings: dict[bytes, Ranking] = {}

    def set_node(self, node: Object) -> bool:
        """Take in a node's present state; return False if nothing that placement depends on has changed."""
        name = node["metadata"]["name"]
        old = self.rooms.get(name)
        if old is not None and _placement_view(old.node) == _placement_view(node):
            old.node = node
            return False
        room = NodeUsage(node, amounts((node.get("status") or {}).get("allocatable")))
        for requests in self._held.get(name, {}).values():
            room.reserve(requests)
        self.rooms[name] = room
        self._changed(name)
        return True

    def remove_node(self, name: str) -> None:
        if self.rooms.pop(name, None) is not None:
            self._changed(name)

    def hold(self, uid: str, node: str, requests: dict[str, int]) -> None:
        """Reserve for a pod on a node; a known reservation stays, so that the watch may confirm an assumption."""
        if self._where.get(uid) == node:
            return
        self.release(uid)
        self._where[uid] = node
        self._held.setdefault(node, {})[uid] = requests
        if (room := self.rooms.get(node)) is not None:
            room.reserve(requests)
            self._changed(node)

    def is_reserved(self, uid: str) -> bool:
        return uid in self._where

    def release(self, uid: str) -> bool:
        """Give back a pod's reservation; return False if it had none."""
        node = self._where.pop(uid, None)
        if node is None:
            return False
        requests = self._held[node].pop(uid)
        if (room := self.rooms.get(node)) is not None:
            room.reserve(requests, sign=-1)
            self._changed(node)
        return True

    def choose(self, demand: Demand) -> tuple[str | None, str]:
        """Return the node for a pod; or None, and why, in kube-scheduler's words."""
        if demand.pinned is not None:
            return self._choose_pinned(demand, demand.pinned)
        ranking = self._rankings.pop(demand.key, None) or Ranking(demand, self.rooms)
        self._rankings[demand.key] = ranking  # last used goes last
        while len(self._rankings) > RANKINGS_KEPT:
            del self._rankings[next(iter(self._rankings))]
        name = ranking.best(self.rooms)
        if name is not None:
            return name, ""
        return None, unschedulable_message(ranking.refused.values(), len(self.rooms))

    def _choose_pinned(self, demand: Demand, pinned: Collection[str]) -> tuple[str | None, str]:
        ranking = Ranking(demand, (name for name in pinned if name in self.rooms))
        name = ranking.best(self.rooms)
        if name is not None:
            return name, ""
        others = len(self.rooms) - len(ranking.refused)
        reasons = [*ranking.refused.values(), *[(NOT_AMONG_PINNED,)] * others]
        return None, unschedulable_message(reasons, len(self.rooms))

    def _changed(self, name: str) -> None:
        for ranking in self._rankings.values():
            ranking.stale.add(name)


def _placement_view(node: Object) -> tuple[object, ...]:
    """The parts of a node that placement depends on; heartbeats are not among them."""
    spec = node.get("spec") or {}
    return (
        node["metadata"].get("labels"),
        spec.get("taints"),
        spec.get("unschedulable"),
        (node.get("status") or {}).get("allocatable"),
    )
