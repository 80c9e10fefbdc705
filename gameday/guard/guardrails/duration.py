"""The absolute time limit: no run is on for longer, whatever it waits for."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Look, longest_run
from gameday.ledger.lease import seconds_awake_or_not


class MaxDuration(Guardrail):
    """By a clock that nobody can set and that runs on while the machine sleeps."""

    name: ClassVar[str] = "duration"
    every_s: ClassVar[float | None] = 0.1
    needs_targets: ClassVar[bool] = False

    def limit(self, look: Look) -> str:
        longest = longest_run(look.of_plan, look.of_profile)
        return (
            f"at most {longest.total_seconds():g} s ({'plan' if longest == look.of_plan.max_duration else 'profile'})"
        )

    def measure(self, look: Look) -> Finding:
        longest = longest_run(look.of_plan, look.of_profile)
        took_s = seconds_awake_or_not() - look.run.began_s
        ok = took_s <= longest.total_seconds()
        return Finding(ok, f"{took_s:.1f} s", "" if ok else "longer than guardrails.max_duration")
