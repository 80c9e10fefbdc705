"""The absolute time limit: no run is on for longer, whatever it waits for."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Observation, longest_run
from gameday.ledger.lease import boottime_s


class MaxDuration(Guardrail):
    """By a clock that nobody can set and that runs on while the machine sleeps."""

    name: ClassVar[str] = "duration"
    every_s: ClassVar[float | None] = 0.1
    needs_targets: ClassVar[bool] = False

    def limit(self, observation: Observation) -> str:
        longest = longest_run(observation.of_plan, observation.of_profile)
        source = "plan" if longest == observation.of_plan.max_duration else "profile"
        return f"at most {longest.total_seconds():g} s ({source})"

    def measure(self, observation: Observation) -> Finding:
        longest = longest_run(observation.of_plan, observation.of_profile)
        took_s = boottime_s() - observation.run.record.started_boottime_s
        ok = took_s <= longest.total_seconds()
        return Finding(ok, f"{took_s:.1f} s", "" if ok else "longer than guardrails.max_duration")
