"""The pods that no game-day may endanger: those of protected namespaces and priority classes."""

from __future__ import annotations

from typing import ClassVar

from gameday.cluster.drain import is_bound_to_node
from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import WATCH_HINT, Observation, first_names


class Protected(Guardrail):
    """Forbids such pods on a target; one that starts there later stops the run. It reads the run's own watch."""

    name: ClassVar[str] = "protected pods"
    interval_s: ClassVar[float | None] = 0.5

    def limit(self, observation: Observation) -> str:
        namespaces, classes = _protected(observation)
        parts = [f"namespaces {', '.join(sorted(namespaces))}"] if namespaces else []
        parts += [f"priority classes {', '.join(sorted(classes))}"] if classes else []
        return f"none of {' and '.join(parts)}" if parts else ""

    def measure(self, observation: Observation) -> Measurement:
        namespaces, classes = _protected(observation)
        found = [
            f"{pod.metadata.namespace}/{pod.metadata.name} on {target.node}"
            for target in observation.targets
            for pod in observation.pods(target.node)
            if (pod.metadata.namespace in namespaces or pod.spec.priority_class_name in classes)
            and not is_bound_to_node(pod)
        ]
        if observation.watch_trouble and not found:
            return Measurement(None, "", observation.watch_trouble, WATCH_HINT)
        hint = "drain them first, or choose other targets"
        return Measurement(not found, f"{len(found)} pods", first_names(found), hint if found else "")


def _protected(observation: Observation) -> tuple[frozenset[str], frozenset[str]]:
    return observation.both_lists("protected_namespaces"), observation.both_lists("protected_priority_classes")
