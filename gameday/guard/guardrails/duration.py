"""The time limit of a whole run."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation


class MaxDuration(Guardrail):
    """Limits the duration, by a clock that cannot be set and that also counts while the machine sleeps."""

    name: ClassVar[str] = "duration"
    interval_s: ClassVar[float | None] = 0.1
    needs_targets: ClassVar[bool] = False

    def limit(self, observation: Observation) -> str:
        longest = observation.longest_run
        source = "plan" if longest == observation.plan_guardrails.max_duration else "profile"
        return f"at most {longest.total_seconds():g} s ({source})"

    def measure(self, observation: Observation) -> Measurement:
        longest = observation.longest_run
        took_s = observation.run.clock.boottime() - observation.run.record.started_boottime_s
        ok = took_s <= longest.total_seconds()
        return Measurement(ok, f"{took_s:.1f} s", "" if ok else "longer than guardrails.max_duration")
