"""The interface of a remediation: what every one has, and what it may have beside that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from gameday.host.base import Host
from gameday.host.privileges import UNSTATED, PodSecurity


class OptionalParts:
    """The parts that a remediation may define; each has a safe value if it is left out."""

    security: ClassVar[PodSecurity] = UNSTATED
    """The rights over its node that the agent's pod needs, and no more. Left out: none."""
    drains_node: ClassVar[bool] = True
    """The node is cordoned, and pods with GPUs are evicted before the repair; one that cannot leave prevents it."""
    needs_idle_gpu: ClassVar[bool] = False
    """The baseline refuses a target whose GPU is open in a process that does not leave with the drained pods."""
    takes_node_down: ClassVar[bool] = False
    """The agent does not outlive the repair: all pods with a controller are evicted before, and the repair succeeded
    when the node is Ready with another boot id."""


class Remediation(OptionalParts, ABC):
    """A way to repair a node once the fault is out of it."""

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
            lines: Evidence for people, to which every act and its result is added.

        Raises:
            HostError: The node is not repaired; the message says why.
        """
