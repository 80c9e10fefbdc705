"""The memory of the machine that runs a virtual cluster: the game-day ends before the machine suffers."""

from __future__ import annotations

import sys
from typing import ClassVar

from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation
from gameday.host.memory import GAME_DAYS_NEED, free_memory


class FreeMemory(Guardrail):
    """Requires a share of free memory, only in a rehearsal: a real cluster's nodes do not share this flow's memory."""

    name: ClassVar[str] = "free memory"
    interval_s: ClassVar[float | None] = 1.0
    needs_targets: ClassVar[bool] = False

    def limit(self, observation: Observation) -> str:
        is_readable = sys.platform == "linux"  # elsewhere there is no /proc/meminfo
        if observation.run.profile.rehearsal is None or not is_readable:
            return ""
        return f"at least {GAME_DAYS_NEED:.0%} of the memory that the virtual cluster runs in (rehearsal)"

    def measure(self, observation: Observation) -> Measurement:
        free = free_memory()
        if free.share >= GAME_DAYS_NEED:
            return Measurement(True, str(free))
        hint = "end other programs, or start a smaller cluster (--nodes)"
        return Measurement(False, str(free), f"{free.owner} ran short of memory: {hint}", hint)
