"""The base of our own value objects."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema
from pydantic_core import core_schema

FolderName = Annotated[str, Field(pattern=r"^[^/\x00]*[^/.\x00][^/\x00]*$")]
"""The name of a folder beside the record that names it: never a path, which could lead elsewhere."""


class FrozenModel(BaseModel):
    """A model that cannot be changed once it is built, and that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def objects_only(base: type) -> GetPydanticSchema:
    """Return the annotation of a field that takes objects of this class as they are, and nothing else."""

    def refuse(_: object) -> None:
        raise ValueError(f"only an object of {base.__name__} can be here")

    schema = core_schema.json_or_python_schema(
        json_schema=core_schema.no_info_plain_validator_function(refuse),
        python_schema=core_schema.is_instance_schema(base),
    )
    return GetPydanticSchema(lambda _, __: schema)
