"""Events of a proof, beside those of the node's watch."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from gameday.history.events.model import EventModel
from gameday.values.results import Cleanliness
from gameday_prove.values import Line, Posture, Surroundings


class ProveLooked(EventModel):
    """The look, and what was agreed on."""

    kind: Literal["prove_looked"] = "prove_looked"
    posture: Posture
    surroundings: Surroundings
    lines: tuple[Line, ...]


class ProveLinePlayed(EventModel):
    """A line that was written into the kernel log, and how it was found there."""

    kind: Literal["prove_line_played"] = "prove_line_played"
    line: int
    at: AwareDatetime = Field(description="by the node's clock, within the pod's life as it was seen here")
    record: str
    gpu: str
    missing: bool = Field(description="reading the kernel log back did not show it")


class ProveLineWatched(EventModel):
    """The end of the watch after a line."""

    kind: Literal["prove_line_watched"] = "prove_line_watched"
    line: int
    seconds: float


class ProveAlertSeen(EventModel):
    """An alert about the node that was not there before the first line."""

    kind: Literal["prove_alert_seen"] = "prove_alert_seen"
    alert: str
    state: Literal["pending", "firing"]
    at: AwareDatetime


class ProveEnded(EventModel):
    """The end: what is left of ours, and why it ended early."""

    kind: Literal["prove_ended"] = "prove_ended"
    cleanliness: Cleanliness
    evidence: tuple[str, ...]
    stopped: str = ""
