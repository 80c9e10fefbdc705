"""Sizes are read with their unit, and written back as they can be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from gameday.documents.sizes import Size, format_size, parse_size

SIZE: TypeAdapter[int] = TypeAdapter(Size)


@pytest.mark.parametrize(
    ("text", "size"),
    [("20KB", 20_000), ("0.2MB", 200_000), ("1MiB", 1 << 20), ("0B", 0), ("1.5KiB", 1536), ("1GB", 10**9)],
)
def test_units_are_those_of_the_field(text: str, size: int) -> None:
    assert SIZE.validate_python(text) == size


@pytest.mark.parametrize("text", ["20", "20kb", "20 KB", "-1KB", "KB", "1e3B", "9" * 40 + "B", True, None, 1.5])
def test_anything_else_is_refused_with_how_to_write_one(text: object) -> None:
    with pytest.raises(ValidationError, match="a size is written with its unit"):
        SIZE.validate_python(text)


@given(st.integers(0, 10**12))
def test_what_is_written_is_read_back(size: int) -> None:
    assert parse_size(format_size(size)) == size
    assert SIZE.dump_python(size) == format_size(size)
