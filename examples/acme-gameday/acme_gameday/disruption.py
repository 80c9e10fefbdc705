"""A pod of the target that the cluster takes off its node: evicted, preempted, or deleted for a taint."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from kubernetes.client import V1Pod

from gameday import Bound, Expectation, PodSignal


class ExpectedDisruption(PodSignal):
    """A pod of the target that is evicted, preempted, or deleted for a taint."""

    check: ClassVar = "pod-disrupted"

    within: Bound
    """Longest time from the fault going in to the pod's condition."""

    @property
    def wanted(self) -> str:
        """The status that the condition must have."""
        return "True"

    def comes(self, node: str) -> str:
        """Return the expectation as a sentence."""
        return f"A pod of {node} is disrupted"

    def signs_of_pods(self, pods: Sequence[V1Pod]) -> Mapping[str, str]:
        """Return the status of each pod's condition DisruptionTarget, by the pod's name."""
        return {
            f"{pod.metadata.namespace}/{pod.metadata.name}": condition.status
            for pod in pods
            for condition in pod.status.conditions or ()
            if condition.type == "DisruptionTarget"
        }


class Disruption(Expectation):
    """The key of a plan."""

    disruption: ExpectedDisruption | None = None
    """A pod of the target must be evicted, preempted, or deleted for a taint."""
