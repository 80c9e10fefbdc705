"""Pods that no game-day may endanger: of protected namespaces and priority classes."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import BLIND_HINT, Observation, few
from gameday.run.drain import is_bound_to_node


class Protected(Guardrail):
    """Read from the run's own watch of the targets' pods: one that lands there later stops the run."""

    name: ClassVar[str] = "protected pods"
    every_s: ClassVar[float | None] = 0.5

    def limit(self, observation: Observation) -> str:
        (namespaces, of_namespaces), (classes, of_classes) = _protected(observation)
        parts = [f"namespaces {of_namespaces}"] if namespaces else []
        parts += [f"priority classes {of_classes}"] if classes else []
        return f"none of {' and '.join(parts)}" if parts else ""

    def measure(self, observation: Observation) -> Finding:
        (namespaces, _), (classes, _) = _protected(observation)
        found = [
            f"{pod.metadata.namespace}/{pod.metadata.name} on {target.node}"
            for target in observation.targets
            for pod in observation.pods(target.node)
            if (pod.metadata.namespace in namespaces or pod.spec.priority_class_name in classes)
            and not is_bound_to_node(pod)
        ]
        if observation.blind and not found:
            return Finding(None, "", observation.blind, BLIND_HINT)
        hint = "drain them first, or choose other targets"
        return Finding(not found, f"{len(found)} pods", few(found), hint if found else "")


def _protected(observation: Observation) -> tuple[tuple[frozenset[str], str], tuple[frozenset[str], str]]:
    return observation.union("protected_namespaces"), observation.union("protected_priority_classes")
