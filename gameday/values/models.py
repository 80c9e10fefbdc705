"""The base of our own value objects."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """A model that cannot be changed once it is built, and that refuses fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
