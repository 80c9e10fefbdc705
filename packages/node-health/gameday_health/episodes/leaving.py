"""The pods that a drain moves away: all of them, or those that may hold a faulty GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gameday.agent.task import GpuPodsNote
from gameday.cluster.drain import leaving_pods
from gameday.cluster.gpu_pods import GpuPod
from gameday.cluster.manifests import EPISODE_LABEL, RUN_LABEL
from gameday_health.episodes.model import Scope


@dataclass(frozen=True)
class Leaving:
    """A drain's choice of pods. Without a look at the GPUs, every pod with GPUs leaves."""

    scope: Scope
    faulty: frozenset[str] = frozenset()
    """PCI addresses of the faulty GPUs."""
    opened: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The GPUs that each pod has open: PCI addresses by the pod's UID."""

    def of(self, pods: Iterable[Any]) -> list[GpuPod]:
        """Return the pods (V1Pod) of a node that have to leave; our own agents are never among them."""
        leaving = leaving_pods(filter(_is_not_ours, pods), all_leave=self.scope is Scope.ALL_PODS)
        return [pod for pod in leaving if not self._is_elsewhere(pod)]

    def at_once(self, pods: Iterable[GpuPod]) -> list[GpuPod]:
        """Return the leaving pods that have a faulty GPU open: waiting for these saves no work."""
        return [pod for pod in pods if self.opened.get(pod.uid, frozenset()) & self.faulty]

    def _is_elsewhere(self, pod: GpuPod) -> bool:
        """Return True for a pod that is shown to be on other GPUs: it has as many of them open as it holds.

        A pod keeps its GPUs for life, so an earlier look is as good. A pod that has fewer open, or that holds parts of
        GPUs or claims, may hold the faulty one.
        """
        opened = self.opened.get(pod.uid, frozenset())
        is_countable = pod.gpus > 0 and not pod.partial and not pod.claims
        return is_countable and len(opened) == pod.gpus and not opened & self.faulty


def of_faulty_gpus(faulty: Collection[str], notes: Iterable[GpuPodsNote]) -> Leaving:
    """Return the choice of the pods that may hold a faulty GPU.

    Args:
        faulty: PCI addresses of the faulty GPUs.
        notes: The pods that have each GPU open. If a faulty GPU is missing here, every pod with GPUs leaves.
    """
    opened: dict[str, set[str]] = {}
    seen = set()
    for note in notes:
        seen.add(note.pci)
        for pod in note.pods:
            opened.setdefault(pod, set()).add(note.pci)
    if not seen.issuperset(faulty):
        return Leaving(Scope.FAULTY_GPU)
    return Leaving(Scope.FAULTY_GPU, frozenset(faulty), {pod: frozenset(gpus) for pod, gpus in opened.items()})


def _is_not_ours(pod: Any) -> bool:
    labels = pod.metadata.labels or {}
    return EPISODE_LABEL not in labels and RUN_LABEL not in labels
