"""Why a game-day is held, and under whose change: read by people alone, judged by nothing."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from gameday.documents.fields import DocumentModel

_Line = Annotated[str, Field(min_length=1, max_length=500)]


class Goal(StrEnum):
    """Gremlin's kinds of game-day, by its public API."""

    EXPLORE = "explore"
    TRAIN = "train"
    VALIDATE_OUTAGE = "validate-outage"
    TUNE_OBSERVABILITY = "tune-observability"
    OTHER = "other"


class Purpose(DocumentModel):
    """Shown in the report as it stands here; an address is linked where it begins with http:// or https://."""

    goal: Goal | None = None
    """What the game-day is for: explore, train people, validate that a past outage would be caught now, or tune
    what watches."""
    incident: _Line | None = None
    """The outage it is modelled on: its ticket, or the address of its post-mortem."""
    change: _Line | None = None
    """The change or ticket under which it is allowed to run."""
    environment: _Line | None = None
    """What the cluster is: staging, production, one rack of it."""
    contact: _Line | None = None
    """Whom to call when it goes wrong."""
