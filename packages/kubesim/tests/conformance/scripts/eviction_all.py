"""Evictions against budgets in every state. No disruption controller runs, so the budgets' status is the script's."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import MERGE, Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]
NOBODY = "11111111-2222-3333-4444-555555555555"


def _pod(c: Client, name: str, ready: str = "True", phase: str = "Running", **labels: str) -> str:
    """A bound pod with a status."""
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    spec = {"containers": [{"name": "c", "image": "i:1"}], "nodeName": "eviction-1"}
    c.do("POST", pods, {"metadata": {"name": name, "labels": labels}, "spec": spec})
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
    c.do("PATCH", f"{pods}/{name}/status", {"status": status}, MERGE)
    return f"{pods}/{name}"


def _budget(c: Client, name: str, labels: Json, policy: str = "", **status: Any) -> str:
    """A budget with a status; observedGeneration defaults to the present one."""
    budgets = f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets"
    spec: Json = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    if policy:
        spec["unhealthyPodEvictionPolicy"] = policy
    c.do("POST", budgets, {"metadata": {"name": name}, "spec": spec})
    numbers = {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
        "observedGeneration": 1,
    }
    c.do("PATCH", f"{budgets}/{name}/status", {"status": {**numbers, **status}}, MERGE)
    return f"{budgets}/{name}"


def _evict(c: Client, step: str, pod: str, more: Json | None = None, **options: Any) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.rpartition("/")[2]}, **(more or {})}
    c.send(step, "POST", f"{pod}/eviction", body, **options)


def _state(body: Any) -> Any:
    return body if body["kind"] == "Status" else {"metadata": body["metadata"], "status": body["status"]}


@script
def evictions(c: Client) -> None:
    free = _pod(c, "free")
    _evict(c, "without a budget", free)
    c.get("evicted", free, only=_state)
    _evict(c, "again", free)
    _evict(c, "of nothing", f"/api/v1/namespaces/{c.ns}/pods/nobody")
    _evict(c, "in a missing namespace", "/api/v1/namespaces/evictions-none/pods/nobody")
    dry = _pod(c, "dry")
    _evict(c, "dry, in the query", dry, query={"dryRun": "All"})
    _evict(c, "dry, in the options", dry, {"deleteOptions": {"dryRun": ["All"]}})
    c.get("nothing was done", dry, only=_state)
    _evict(c, "another uid", dry, {"deleteOptions": {"preconditions": {"uid": NOBODY}}})
    _evict(c, "another version", dry, {"deleteOptions": {"preconditions": {"resourceVersion": "1"}}})
    _evict(c, "a grace of its own", dry, {"deleteOptions": {"gracePeriodSeconds": 5}})
    c.get("with a grace of its own", dry, only=_state)
    now = _pod(c, "now")
    _evict(c, "no grace", now, {"deleteOptions": {"gracePeriodSeconds": 0}})
    c.get("without grace", now)
    ended = _pod(c, "ended", phase="Succeeded")
    _evict(c, "a pod that has ended", ended)
    c.get("a pod that has ended, afterwards", ended)
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    c.do("POST", pods, {"metadata": {"name": "unbound"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    _evict(c, "an unbound pod", f"{pods}/unbound")
    c.get("an unbound pod, afterwards", f"{pods}/unbound")
    other = _pod(c, "other")
    _evict(c, "another name in the body", other, {"metadata": {"name": "another"}})
    _evict(c, "no name in the body", other, {"metadata": {}}, query={"dryRun": "All"})
    _evict(c, "another namespace in the body", other, {"metadata": {"name": "other", "namespace": "elsewhere"}})
    _evict(c, "the old version", other, {"apiVersion": "policy/v1beta1"})
    c.send("an empty body", "POST", f"{other}/eviction", {}, query={"dryRun": "All"})
    held = _pod(c, "held")
    c.do("PATCH", held, {"metadata": {"finalizers": ["example.com/f"]}}, MERGE)
    _evict(c, "a pod with a finalizer", held)
    c.get("a pod with a finalizer, afterwards", held, only=_state)


@script
def evictions_with_budgets(c: Client) -> None:
    one, two = _pod(c, "one", app="x"), _pod(c, "two", app="x")
    budget = _budget(c, "x", {"app": "x"}, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1, expectedPods=2)
    _evict(c, "one is allowed, dry", one, query={"dryRun": "All"})
    c.get("the budget unchanged", budget, only=_state)
    _evict(c, "one is allowed", one)
    c.get("the budget spent", budget, only=_state)
    _evict(c, "none is left", two)
    _evict(c, "none is left, dry", two, query={"dryRun": "All"})
    c.get("not evicted", two, only=_state)
    c.send("deletion does not ask", "DELETE", two, only=lambda body: body["kind"])
    _evict(c, "a pod on its way out", two)
    stale = _pod(c, "stale", app="s")
    _budget(c, "stale", {"app": "s"}, observedGeneration=0, disruptionsAllowed=1)
    _evict(c, "a budget that is not processed yet", stale)
    never = _pod(c, "never", app="n")
    budgets = f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets"
    c.do(
        "POST",
        budgets,
        {"metadata": {"name": "never"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "n"}}}},
    )
    _evict(c, "a budget without a status", never)
    both = _pod(c, "both", a="1", b="1")
    _budget(c, "both-a", {"a": "1"}, disruptionsAllowed=1)
    _budget(c, "both-b", {"b": "1"}, disruptionsAllowed=1)
    _evict(c, "two budgets", both)
    negative = _pod(c, "negative", app="neg")
    _budget(c, "negative", {"app": "neg"}, currentHealthy=1, desiredHealthy=3)
    _evict(c, "fewer than needed", negative)
    pods = f"/api/v1/namespaces/{c.ns}/pods"
    pending = {
        "metadata": {"name": "pending", "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    c.do("POST", pods, pending)
    _evict(c, "a pending pod is not counted", f"{pods}/pending")
    ended = _pod(c, "ended", phase="Failed", app="x")
    _evict(c, "an ended pod is not counted", ended)
    selectors = _pod(c, "selectors", app="q")
    c.do("POST", budgets, {"metadata": {"name": "nothing"}, "spec": {"minAvailable": 1}})
    c.do("POST", budgets, {"metadata": {"name": "expressions"}, "spec": {"minAvailable": 1, "selector": {
        "matchExpressions": [{"key": "app", "operator": "In", "values": ["q", "r"]}]}}})  # fmt: skip
    c.do("PATCH", f"{budgets}/expressions/status", {"status": {
        "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
        "observedGeneration": 1}}, MERGE)  # fmt: skip
    _evict(c, "a budget with expressions", selectors)
    c.do("DELETE", f"{budgets}/expressions")
    c.do("POST", budgets, {"metadata": {"name": "everything"}, "spec": {"minAvailable": 1, "selector": {}}})
    _evict(c, "a budget of everything", selectors)


@script
def evictions_of_unready_pods(c: Client) -> None:
    for policy in ("", "IfHealthyBudget", "AlwaysAllow"):
        for healthy, desired in ((2, 2), (1, 2), (0, 0)):
            name = f"u{policy.lower()}-{healthy}-{desired}"
            pod = _pod(c, name, ready="False", app=name)
            budget = _budget(
                c, name, {"app": name}, policy, currentHealthy=healthy, desiredHealthy=desired, expectedPods=3
            )
            shown = f"{policy or 'no policy'}, {healthy} of {desired} healthy"
            _evict(c, shown, pod)
            c.get(f"{shown}: the budget", budget, only=lambda body: body["status"])
    ready = _pod(c, "ready", app="ready")
    _budget(c, "ready", {"app": "ready"}, "AlwaysAllow", currentHealthy=1, desiredHealthy=1)
    _evict(c, "a ready pod is not always allowed", ready)
    unready = _pod(c, "unready", ready="False", app="stale")
    _budget(c, "stale", {"app": "stale"}, "AlwaysAllow", observedGeneration=0)
    _evict(c, "an unready pod under a stale budget", unready)
