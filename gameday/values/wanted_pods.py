"""The pods of a node of which a fault needs exactly one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WantedPods:
    """A namespace and the labels that a pod in it goes by."""

    namespace: str
    labels: dict[str, str]
    """All of the labels, that of the owners' consent included."""

    @property
    def selector(self) -> str:
        """The labels as the API server and kubectl take them."""
        return ",".join(f"{key}={value}" for key, value in sorted(self.labels.items()))
