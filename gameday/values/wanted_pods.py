"""The selection of a node's pods from which a fault needs exactly one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WantedPods:
    """A namespace and the labels of a pod in it."""

    namespace: str
    labels: dict[str, str]
    """All of the labels, including that of the owners' consent."""

    @property
    def selector(self) -> str:
        """The labels in the form that the API server and kubectl take."""
        return ",".join(f"{key}={value}" for key, value in sorted(self.labels.items()))
