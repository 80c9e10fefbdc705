"""The change-freeze calendar: times when nothing may be changed."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation


class Freezes(Guardrail):
    """Forbids game-days during a freeze of the profile's calendar."""

    name: ClassVar[str] = "change freeze"
    interval_s: ClassVar[float | None] = 1.0
    needs_targets: ClassVar[bool] = False

    def limit(self, observation: Observation) -> str:
        freezes = observation.profile_guardrails.freezes
        return f"none of {len(freezes)} in the calendar (profile)" if freezes else ""

    def measure(self, observation: Observation) -> Measurement:
        now = observation.now.timestamp()
        on = [
            one
            for one in observation.profile_guardrails.freezes
            if one.since.timestamp() <= now < one.until.timestamp()
        ]
        if on:
            why = f"{on[0].why}, until {on[0].until:%Y-%m-%d %H:%M %Z}"
            return Measurement(False, "frozen", why, "run it after the freeze")
        coming = sorted(one.since for one in observation.profile_guardrails.freezes if one.since.timestamp() > now)
        return Measurement(True, f"the next begins {coming[0]:%Y-%m-%d %H:%M %Z}" if coming else "none is to come")
