"""Whether the PodDisruptionBudgets leave room for the pods that a plan moves away."""

from __future__ import annotations

from typing import ClassVar

from gameday.cluster.kubernetes import gpu_pod
from gameday.guard.base import Finding, Guardrail
from gameday.guard.look import Look, few
from gameday.plan.models import Plan, RemediationAction, TaintEffect


class DisruptionBudgets(Guardrail):
    """One request for each namespace that has GPU pods on a target. While the run is on, the eviction API itself asks
    the budgets, for each pod."""

    name: ClassVar[str] = "disruption budgets"

    def limit(self, look: Look) -> str:
        needed = look.of_profile.pod_disruption_budgets and moves_pods(look.plan)
        return "as many allowed disruptions as there are GPU pods to move (profile)" if needed else ""

    def measure(self, look: Look) -> Finding:
        by_namespace: dict[str, list[dict[str, str]]] = {}
        for target in look.targets:
            for pod in look.pods(target.node):
                if gpu_pod(pod).gpus:
                    by_namespace.setdefault(pod.metadata.namespace, []).append(pod.metadata.labels or {})
        short = []
        budgets = 0
        for namespace, pods in sorted(by_namespace.items()):
            for budget in look.run.kubernetes.disruption_budgets(namespace):
                covered = sum(budget.covers(labels) for labels in pods)
                budgets += bool(covered)
                if covered > budget.allowed:
                    short.append(f"{namespace}/{budget.name} allows {budget.allowed} disruptions of {covered}")
        pods_text = f"{sum(map(len, by_namespace.values()))} GPU pods, {budgets} budgets that cover them"
        hint = "wait until the workload has room, or choose other targets"
        return Finding(not short, pods_text, few(short), hint if short else "")


def moves_pods(plan: Plan) -> bool:
    """Whether GPU pods leave the target in the course of this plan: by its repair, or by a taint that evicts."""
    evicts = any(taint.effect is TaintEffect.NO_EXECUTE for taint in plan.expect.taints)
    gone = plan.expect.workloads.running_pods == "evicted"
    return evicts or gone or plan.recover.remediation is not RemediationAction.NONE
