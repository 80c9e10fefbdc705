"""Value types of plans, cluster profiles, detector profiles and notes, and the base of their models.

An error about a value says how to write it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h)")
_DURATION_MAX_CHARACTERS = 24
"""Room for `100h59m59s999ms`; longer text is not a duration, and would cost the pattern quadratic time."""


def parse_duration(value: object) -> object:
    """Return `90s`, `1m30s` or `500ms` as a timedelta; return a timedelta as it is.

    Raises:
        PydanticCustomError: The value is not a duration; a ValueError with a message that says how to write one.
    """
    if isinstance(value, timedelta):
        return value
    text = value if isinstance(value, str) and len(value) <= _DURATION_MAX_CHARACTERS else ""
    parts = list(_DURATION.finditer(text))
    if not parts or "".join(part.group() for part in parts) != text:
        raise PydanticCustomError("duration", "a duration is written with its unit, like 60s, 5m or 1m30s")
    try:
        return sum((timedelta(**{_UNITS[part["unit"]]: float(part["number"])}) for part in parts), timedelta())
    except OverflowError:
        raise PydanticCustomError("duration", "a duration of more than 999999999 days cannot be kept") from None


def format_duration(value: timedelta) -> str:
    """Return a duration in seconds, in the shortest form that `parse_duration` reads back: `90s`, `0.5s`."""
    return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    Field(ge=timedelta()),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$",
            "maxLength": _DURATION_MAX_CHARACTERS,
            "examples": ["60s", "5m", "1m30s"],
        }
    ),
]


Bound = Annotated[Duration, Field(gt=timedelta())]
"""The longest time that something may take; above 0s, because nothing happens within 0s."""

PLAN_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NODE_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
TIME_OF_DAY = r"^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$"
ALERT_NAME = r"^[a-zA-Z_:][a-zA-Z0-9_:]*$"
LABEL_KEY = r"^([a-z0-9A-Z]([-a-z0-9A-Z.]*[a-z0-9A-Z])?/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?$"
LABEL_VALUE = r"^([a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?)?$"

# Lengths are Kubernetes' own: a DNS prefix of 253, a slash and a name of 63; values 63; node names 253.
LabelKey = Annotated[str, Field(pattern=LABEL_KEY, max_length=317)]
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE, max_length=63)]
NodeName = Annotated[str, Field(pattern=NODE_NAME, max_length=253)]

# The API server's own limits: a condition's type is a label key, and an Event's reason has at most 128 characters.
ConditionType = Annotated[str, Field(pattern=LABEL_KEY, max_length=316)]
REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
Reason = Annotated[str, Field(pattern=REASON, max_length=128)]


def _boolean_as_text(value: object) -> object:
    """Return a boolean as text: YAML reads a bare `True` as a boolean, while a condition's status is text."""
    return str(value) if isinstance(value, bool) else value


ConditionStatus = Annotated[Literal["True", "False", "Unknown"], BeforeValidator(_boolean_as_text)]


def conflict(at: tuple[str | int, ...], reason: str) -> PydanticCustomError:
    """Return an error about two fields that do not fit together, for a model's validator to raise.

    Args:
        at: Path of the field to change, from the model that raises the error.
        reason: The message: what does not fit, and what to do.
    """
    return PydanticCustomError("conflict", "{reason}", {"reason": reason, "at": at})


class DocumentModel(BaseModel):
    """Base of every part of a document. It is frozen, takes no unknown keys, and its field docstrings describe it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def whole(cls) -> type[DocumentModel]:
        """Return the model by which a document is read: this one, or one with keys that others add."""
        return cls


class DocumentPart(DocumentModel):
    """Keys of a mapping that belong together; the model of the whole mapping has all such classes as bases."""

    @classmethod
    def of(cls, document: DocumentModel) -> Self:
        """Return a mapping's model as one of this class; this class's defaults for one read without it."""
        return document if isinstance(document, cls) else cls()


def by_whole(model: type[DocumentModel]) -> WrapValidator:
    """Return the validator of a field with this model: it reads a mapping by `model.whole()`."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        return model.whole().model_validate(value, context=info.context) if isinstance(value, dict) else handler(value)

    return WrapValidator(validate)
