"""The number of GPUs that may be out of work at the same time; a quarantined node counts with all of its GPUs."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation


class Gpus(Guardrail):
    """Limits the allocatable GPUs of all targets together."""

    name: ClassVar[str] = "GPUs"

    def limit(self, observation: Observation) -> str:
        limit = observation.strictest("max_gpus")
        return limit.describe() if limit else ""

    def measure(self, observation: Observation) -> Measurement:
        limit = observation.strictest("max_gpus")
        counts = {target.node: observation.before(target.node).allocatable_gpus for target in observation.targets}
        unknown = [node for node, gpus in counts.items() if gpus is None]
        if unknown:
            return Measurement(
                None, "", f"{', '.join(unknown)} reports no allocatable GPUs", "is the device plugin up?"
            )
        gpus = sum(filter(None, counts.values()))
        return Measurement(limit is None or gpus <= limit.value, f"{gpus}", hint="fewer or smaller targets")
