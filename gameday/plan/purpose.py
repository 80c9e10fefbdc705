"""The purpose of a game-day, for the people who read the report. Nothing is judged by it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from gameday.documents.fields import DocumentModel

_Line = Annotated[str, Field(min_length=1, max_length=500)]


class Goal(StrEnum):
    """The kinds of game-day, as in Gremlin's public API."""

    EXPLORE = "explore"
    TRAIN = "train"
    VALIDATE_OUTAGE = "validate-outage"
    TUNE_OBSERVABILITY = "tune-observability"
    OTHER = "other"


class Purpose(DocumentModel):
    """Texts for the report; one that begins with http:// or https:// becomes a link."""

    goal: Goal | None = None
    """Goal of the game-day: explore, train people, validate that a past outage would be noticed now, or tune the
    observability."""
    incident: _Line | None = None
    """The outage that it is modelled on: its ticket, or the address of its post-mortem."""
    change: _Line | None = None
    """The change or ticket under which it is allowed to run."""
    environment: _Line | None = None
    """The kind of cluster: staging, production, one rack of it."""
    contact: _Line | None = None
    """The person to call if something goes wrong."""
