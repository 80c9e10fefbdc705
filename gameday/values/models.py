"""The base of our own value objects."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

FolderName = Annotated[str, Field(pattern=r"^[^/\x00]*[^/.\x00][^/\x00]*$")]
"""The name of a folder beside the record that names it: never a path, which could lead elsewhere."""


class FrozenModel(BaseModel):
    """A model that cannot be changed once it is built, and that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
