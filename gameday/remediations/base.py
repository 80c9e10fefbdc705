"""The interface of a remediation: its mandatory and its optional parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from gameday.host.base import Host
from gameday.host.privileges import UNSTATED, PodSecurity


class OptionalParts:
    """The optional parts of a remediation; each has a safe default."""

    security: ClassVar[PodSecurity] = UNSTATED
    """The rights over its node that the agent's pod needs, and no more. Default: none."""
    drains_node: ClassVar[bool] = True
    """The node is cordoned, and pods with GPUs are evicted before the repair; a pod that cannot leave prevents it."""
    needs_idle_gpu: ClassVar[bool] = False
    """The baseline refuses a target if its GPU is open in a process that does not leave with the drained pods."""
    takes_node_down: ClassVar[bool] = False
    """The agent does not survive the repair: all pods with a controller are evicted before, and the repair has
    succeeded when the node is Ready with a new boot id."""


class Remediation(OptionalParts, ABC):
    """A way to repair a node once its fault is out."""

    name: ClassVar[str]
    """The plan's `recover.remediation`: lower-case letters, digits and `-`."""
    summary: ClassVar[str]
    """The remediation's line in lists and in the plan's schema."""

    @abstractmethod
    def repair(self, gpu: int | None, host: Host, lines: list[str]) -> None:
        """Repair the node, and prove by reading that it is repaired.

        Args:
            gpu: NVML index of the run's GPU; None if the run chose a node and no GPU.
            host: The node.
            lines: Evidence for people; every act and its result is added to it.

        Raises:
            HostError: The node is not repaired; the message says why.
        """
