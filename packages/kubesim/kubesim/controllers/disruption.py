"""Keep the status of PodDisruptionBudgets, by which the API server answers evictions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubesim.client import ApiClient, Object, Reflector, key_of
from kubesim.clock import now_utc, parse_time_if_any
from kubesim.controllers.conditions import holds, with_condition
from kubesim.controllers.daemonsets import share
from kubesim.controllers.pods import is_terminating, owner_of
from kubesim.controllers.workqueue import WorkQueue
from kubesim.selectors import matches_labels

# Longest time until an eviction that the API server granted shows as a deletion (upstream's DeletionTimeout).
DELETION_TIMEOUT = timedelta(minutes=2)
POD_CHANGE_PAUSE_S = 0.05


@dataclass(frozen=True)
class BudgetStep:
    """The status to store, and the time at which a granted eviction that never happened is forgotten."""

    status: Object
    requeue_at: datetime | None


def next_step(budget: Object, pods: list[Object], expected: int, now: datetime) -> BudgetStep:
    """Return the budget's status. `pods`: those it selects; `expected`: how many their owners want."""
    granted = (budget.get("status") or {}).get("disruptedPods") or {}
    names = {pod["metadata"]["name"] for pod in pods if not is_terminating(pod)}
    open_until = {
        name: when + DELETION_TIMEOUT
        for name, text in granted.items()
        if name in names and (when := parse_time_if_any(text)) and when + DELETION_TIMEOUT > now
    }
    healthy = sum(
        1 for p in pods if holds(p, "Ready") and not is_terminating(p) and p["metadata"]["name"] not in open_until
    )
    desired = desired_healthy(budget["spec"], expected)
    allowed = max(0, healthy - desired) if expected else 0
    generation = budget["metadata"].get("generation", 1)
    new_condition = {"type": "DisruptionAllowed", "status": "True" if allowed else "False", "message": ""}
    new_condition["reason"] = "SufficientPods" if allowed else "InsufficientPods"
    status = {
        **(budget.get("status") or {}),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
        "observedGeneration": generation,
        "conditions": with_condition(budget, {**new_condition, "observedGeneration": generation}, now),
        "disruptedPods": {name: granted[name] for name in open_until},
    }
    if not open_until:
        del status["disruptedPods"]
    return BudgetStep(status, min(open_until.values(), default=None))


def desired_healthy(spec: Object, expected: int) -> int:
    """Return minAvailable, or `expected` less maxUnavailable; percentages round up."""
    if spec.get("maxUnavailable") is not None:
        return max(0, expected - share(spec["maxUnavailable"], expected))
    return share(spec.get("minAvailable", 1), expected)


def expected_pods(spec: Object, pods: list[Object], scale: Callable[[Object], int | None]) -> int:
    """Return the number of pods that there should be: their owners' scale, or as many as there are.

    If minAvailable is a plain number, no scale is needed. Upstream refuses budgets over owners without a scale; here
    such pods (bare ones, ReplicaSets) count as they are.
    """
    if isinstance(spec.get("minAvailable"), int):
        return len(pods)
    owners = {owner["uid"]: owner for pod in pods if (owner := owner_of(pod))}
    bare = sum(1 for pod in pods if owner_of(pod) is None)
    total = bare
    for uid, owner in owners.items():
        wanted = scale(owner)
        total += sum(1 for p in pods if (owner_of(p) or {}).get("uid") == uid) if wanted is None else wanted
    return total


class DisruptionController:
    """Reconciles one PodDisruptionBudget at a time."""

    def __init__(self, api: ApiClient, budgets: Reflector, pods: Reflector, jobs: Reflector) -> None:
        self._api = api
        self._budgets = budgets
        self._pods = pods
        self._jobs = jobs
        self._queue = WorkQueue("disruption", self._reconcile, workers=1)
        budgets.on(self._seen, lambda _, budget: self._seen(budget))
        pods.on(self._pod_seen, self._pod_changed, self._pod_seen)

    async def run(self) -> None:
        await asyncio.gather(*(r.synced.wait() for r in (self._budgets, self._pods, self._jobs)))
        await self._queue.run()

    def _seen(self, budget: Object) -> None:
        self._queue.add(key_of(budget))

    def _pod_seen(self, pod: Object) -> None:
        for key, budget in self._budgets.store.items():
            if _selects(budget, pod):
                self._queue.add_after(key, POD_CHANGE_PAUSE_S)

    def _pod_changed(self, old: Object, new: Object) -> None:
        self._pod_seen(new)
        if old["metadata"].get("labels") != new["metadata"].get("labels"):
            self._pod_seen(old)

    async def _reconcile(self, key: str) -> None:
        budget = self._budgets.store.get(key)
        if budget is None:
            return
        pods = [pod for pod in self._pods.store.values() if _selects(budget, pod)]
        step = next_step(budget, pods, expected_pods(budget["spec"], pods, self._scale), now_utc())
        if step.requeue_at is not None:
            self._queue.add_at(key, step.requeue_at)
        if step.status != budget.get("status"):
            meta = budget["metadata"]
            path = f"/apis/policy/v1/namespaces/{meta['namespace']}/poddisruptionbudgets/{meta['name']}/status"
            await self._api.put(path, {**budget, "status": step.status})

    def _scale(self, owner: Object) -> int | None:
        for job in self._jobs.store.values():
            if job["metadata"]["uid"] == owner["uid"]:
                return int(job["spec"].get("parallelism", 1))
        return None


def _selects(budget: Object, pod: Object) -> bool:
    same_namespace = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return same_namespace and matches_labels(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})
