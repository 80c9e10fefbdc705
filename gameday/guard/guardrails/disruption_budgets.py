"""The room that PodDisruptionBudgets leave for the pods that a plan moves away."""

from __future__ import annotations

from typing import ClassVar

from gameday.cluster.drain import is_bound_to_node
from gameday.cluster.gpu_pods import gpu_pod
from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation, first_names
from gameday.run.drain import empties_node, moves_pods


class DisruptionBudgets(Guardrail):
    """Requires an allowed disruption for each pod that has to leave: those with GPUs, or all if the node goes down.

    It costs one request for each namespace with such pods. During the run the eviction API itself checks the budgets.
    """

    name: ClassVar[str] = "disruption budgets"

    def limit(self, observation: Observation) -> str:
        needed = observation.profile_guardrails.pod_disruption_budgets and moves_pods(observation.plan)
        return (
            f"as many allowed disruptions as there are {_kind_of_pods(observation)} to move (profile)" if needed else ""
        )

    def measure(self, observation: Observation) -> Measurement:
        everything = empties_node(observation.plan)
        by_namespace: dict[str, list[dict[str, str]]] = {}
        for target in observation.targets:
            for pod in observation.pods(target.node):
                if (everything or gpu_pod(pod).holds_gpu) and not is_bound_to_node(pod):
                    by_namespace.setdefault(pod.metadata.namespace, []).append(pod.metadata.labels or {})
        short = []
        budgets = 0
        for namespace, pods in sorted(by_namespace.items()):
            for budget in observation.run.kubernetes.disruption_budgets(namespace):
                covered = sum(budget.covers(labels) for labels in pods)
                budgets += bool(covered)
                if covered > budget.allowed:
                    short.append(f"{namespace}/{budget.name} allows {budget.allowed} disruptions of {covered}")
        pods_text = (
            f"{sum(map(len, by_namespace.values()))} {_kind_of_pods(observation)}, {budgets} budgets that cover them"
        )
        hint = "wait until the workload has room, or choose other targets"
        return Measurement(not short, pods_text, first_names(short), hint if short else "")


def _kind_of_pods(observation: Observation) -> str:
    return "pods" if empties_node(observation.plan) else "GPU pods"
