"""How many GPUs may be out of work at once: a quarantined node takes all of its GPUs along."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Observation


class Gpus(Guardrail):
    name: ClassVar[str] = "GPUs"

    def limit(self, observation: Observation) -> str:
        limit = observation.strictest("max_gpus")
        return limit.shown("") if limit else ""

    def measure(self, observation: Observation) -> Finding:
        limit = observation.strictest("max_gpus")
        counts = {target.node: observation.before(target.node).allocatable_gpus for target in observation.targets}
        unknown = [node for node, gpus in counts.items() if gpus is None]
        if unknown:
            return Finding(None, "", f"{', '.join(unknown)} reports no allocatable GPUs", "is the device plugin up?")
        gpus = sum(filter(None, counts.values()))
        return Finding(limit is None or gpus <= limit.value, f"{gpus}", hint="fewer or smaller targets")
