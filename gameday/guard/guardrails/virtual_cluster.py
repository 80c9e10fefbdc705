"""The virtual cluster of a rehearsal: when it has ended, the game-day on it ends as well, and says why."""

from __future__ import annotations

from typing import ClassVar

from gameday.cluster.virtual_cluster import why_ended
from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation


class VirtualCluster(Guardrail):
    """Checks that its processes still run, only in a rehearsal. A look costs a system call."""

    name: ClassVar[str] = "virtual cluster"
    interval_s: ClassVar[float | None] = 0.5
    needs_targets: ClassVar[bool] = False

    def limit(self, observation: Observation) -> str:
        return "its processes run (rehearsal)" if observation.run.profile.rehearsal else ""

    def measure(self, observation: Observation) -> Measurement:
        if why := why_ended(observation.run.profile.rehearsal):
            return Measurement(False, "", why, "start it again")
        return Measurement(True, "running")
