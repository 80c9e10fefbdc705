"""Shares, written in percent."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic.functional_validators import AfterValidator
from pydantic_core import PydanticCustomError

_PERCENT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*%")


def _parse_percent(value: object) -> object:
    """Return `50%` as 0.5; every other text is an error that says how to write a share."""
    if isinstance(value, float):  # a share already: read back from JSON, or given in Python
        return value
    found = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise PydanticCustomError("percent", "a share is written in percent, like 50% or 0.5%")
    return float(found[1]) / 100


def format_percent(share: float) -> str:
    """Return a share as `50%` or `0.5%`, as short as `Percent` can read back."""
    return f"{share * 100:.6f}".rstrip("0").rstrip(".") + "%"


Percent = Annotated[
    float,
    BeforeValidator(_parse_percent),
    Field(ge=0, allow_inf_nan=False),
    PlainSerializer(format_percent, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{1,6}(\.[0-9]{1,6})?\s*%$", "examples": ["50%", "0.5%"]}),
]
"""A share, written `50%` and kept as 0.5; it may be above 100%."""


def _at_most_all(value: float) -> float:
    if value > 1:
        raise PydanticCustomError("percent", "must be at most 100%")
    return value


PartPercent = Annotated[Percent, AfterValidator(_at_most_all)]
"""A share of at most 100%."""
