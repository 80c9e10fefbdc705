"""Sizes of memory and of objects, as plans write them: `0.2MB`, `800MiB`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

_UNITS = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = re.compile(rf"([0-9]{{1,12}}(?:\.[0-9]{{1,6}})?)({'|'.join(_UNITS)})")


def parse_size(value: object) -> object:
    """Return `20KB`, `0.2MB` or `1GiB` in bytes; a whole number already is in bytes.

    Raises:
        PydanticCustomError: The value is not a size; a ValueError with a message that says how to write one.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise PydanticCustomError("size", "a size is written with its unit, like 20KB, 0.2MB or 800MiB")
    return round(float(found[1]) * _UNITS[found[2]])


def format_size(size: int) -> str:
    """Return a number of bytes in the shortest form that `parse_size` reads back: `200KB`, `1GiB`, `1025B`."""
    for unit in ("GiB", "GB", "MiB", "MB", "KiB", "KB"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return f"{size}B"


Size = Annotated[
    int,
    BeforeValidator(parse_size),
    Field(ge=0, le=2**50),
    PlainSerializer(format_size, return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^[0-9]{{1,12}}(\.[0-9]{{1,6}})?({'|'.join(_UNITS)})$",
            "examples": ["20KB", "0.2MB", "800MiB"],
        }
    ),
]
"""A number of bytes, written `20KB` (1000) or `20KiB` (1024)."""
