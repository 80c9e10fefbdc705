"""The time of a signal by its source's own clock, and the times at which the run looked."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

CLOCK_TOLERANCE_S = 1.0
"""Two clocks on one site may disagree by this much before a duration between them means nothing (NTP keeps LAN hosts
well below it; the sources we compare stamp to the millisecond)."""
WHOLE_SECOND_S = 1.0
"""The inaccuracy of a timestamp of the Kubernetes API (metav1.Time), which is cut to the second."""


class Dated(BaseModel):
    """The reports of when a signal came: its source's, and the run's own looks.

    It came between `earliest` and `latest`; figures use `latest`. If the run's looks refute a source's time by more
    than CLOCK_TOLERANCE_S, the looks count instead.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    own: AwareDatetime | None = Field(description="by the source's clock; None if the source gives none")
    source: str = Field(description="what dated it, in words")
    open_s: float = Field(default=0.0, description="seconds after `own` that the source leaves open")
    every_s: float = Field(
        default=0.0, description="seconds between two evaluations of the rule; 0: no rule, or unknown"
    )
    absent_at: AwareDatetime | None = Field(default=None, description="the run's last look that did not show it")
    seen_at: AwareDatetime = Field(description="the run's look that did")

    @property
    def ahead_s(self) -> float:
        """Seconds by which the source dates the signal after it was seen; 0 within the tolerance."""
        return _beyond(self.own, self.seen_at)

    @property
    def behind_s(self) -> float:
        """Seconds by which the source dates the signal before a look that did not show it; 0 within the tolerance."""
        return _beyond(self.absent_at, self.own + timedelta(seconds=self.open_s)) if self.own else 0.0

    @property
    def latest(self) -> datetime:
        """The latest time at which it can have come."""
        if self.own is None or self.ahead_s or self.behind_s:
            return self.seen_at
        return min(self.own + timedelta(seconds=self.open_s), self.seen_at)

    @property
    def earliest(self) -> datetime:
        """The earliest time at which it can have come."""
        if self.own is None or self.ahead_s:
            return self.absent_at or self.seen_at
        return min(self.own, self.latest)


def _beyond(later: datetime | None, earlier: datetime) -> float:
    seconds = (later - earlier).total_seconds() if later else 0.0
    return seconds if seconds > CLOCK_TOLERANCE_S else 0.0
