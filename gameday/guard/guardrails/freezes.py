"""The change-freeze calendar: times when nothing may be changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from gameday.cluster.profile import Freeze
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
        freezes, now = observation.profile_guardrails.freezes, observation.now
        if why := why_frozen(freezes, now):
            return Measurement(False, "frozen", why, "run it after the freeze")
        coming = sorted(one.since for one in freezes if one.since.timestamp() > now.timestamp())
        return Measurement(True, f"the next begins {coming[0]:%Y-%m-%d %H:%M %Z}" if coming else "none is to come")


def why_frozen(freezes: Sequence[Freeze], now: datetime) -> str:
    """Return the reason and the end of the first freeze at this moment; empty if there is none."""
    on = (one for one in freezes if one.since.timestamp() <= now.timestamp() < one.until.timestamp())
    return next((f"{one.why}, until {one.until:%Y-%m-%d %H:%M %Z}" for one in on), "")
