"""JSON schemas of documents, for editors and for the documentation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from gameday.documents.fields import format_duration


class DocumentSchema(GenerateJsonSchema):
    """A generator of schemas without invented titles, and with durations as people write them."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: the names of keys are titles enough."""
        return False

    def encode_default(self, dft: Any) -> Any:
        """Return a default as JSON; a duration as text."""
        return format_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)
