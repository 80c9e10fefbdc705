"""The virtual cluster of a rehearsal: a game-day on one that has ended ends as well, and says why."""

from __future__ import annotations

from typing import ClassVar

from gameday.cluster.virtual_cluster import why_ended
from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation


class VirtualCluster(Guardrail):
    """Looks whether its processes still run, in a rehearsal only. A look costs a system call."""

    name: ClassVar[str] = "virtual cluster"
    interval_s: ClassVar[float | None] = 0.5
    needs_targets: ClassVar[bool] = False

    def limit(self, observation: Observation) -> str:
        return "its processes run (rehearsal)" if observation.run.profile.rehearsal else ""

    def measure(self, observation: Observation) -> Measurement:
        if why := why_ended(observation.run.profile.rehearsal):
            return Measurement(False, "", why, "start it again")
        return Measurement(True, "running")
