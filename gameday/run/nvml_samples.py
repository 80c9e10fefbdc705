"""The NVML samples that agents took of the targets, as rows of the frame `nvml`."""

from __future__ import annotations

from collections.abc import Iterable

from gameday.agent.task import SampledGpu, SampledNote

_FIGURES = tuple(name for name in SampledGpu.model_fields if name != "index")


class NvmlSamples:
    """The samples of all targets; a sampler's log is read once, right before its pod is deleted."""

    def __init__(self) -> None:
        self._notes: dict[str, tuple[str, tuple[SampledNote, ...]]] = {}

    def has(self, pod: str) -> bool:
        """Return True if a pod's notes are already here, because a failed undo is tried again."""
        return pod in self._notes

    def add(self, node: str, pod: str, notes: Iterable[SampledNote]) -> None:
        """Add the notes of a sampler's pod on a node."""
        self._notes[pod] = (node, tuple(notes))

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each figure that NVML showed; a missing figure has no row."""
        return [
            {
                "time": note.at,
                "node": node,
                "gpu": str(gpu.index),
                "metric": name,
                "value": float(value),
                "source": pod,
            }
            for pod, (node, notes) in self._notes.items()
            for note in notes
            for gpu in note.gpus
            for name in _FIGURES
            if (value := getattr(gpu, name)) is not None
        ]
