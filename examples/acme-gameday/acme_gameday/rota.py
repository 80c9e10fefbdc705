"""A kind of file: who stands by during our game-days."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gameday import DocumentError
from gameday.documents.explain import explain
from gameday.documents.source import Source

KIND = "AcmeRota"


class Rota(BaseModel):
    """One who watches, and at least one who stands in."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["AcmeRota"]
    name: str
    people: list[str] = Field(min_length=2)


def checked(parsed: Source, path: Path) -> str:
    try:
        return Rota.model_validate(parsed.data).name
    except ValidationError as error:
        raise DocumentError(explain(error, parsed, str(path), Rota)) from None
