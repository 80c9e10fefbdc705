"""The base of every kind of event."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class EventModel(BaseModel):
    """An event of a history; `kind` is its name there."""

    model_config = ConfigDict(frozen=True, extra="forbid")
