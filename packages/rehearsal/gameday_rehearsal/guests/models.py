"""The document of a guest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from gameday.documents.fields import PLAN_NAME, conflict
from gameday_rehearsal.guests.placeholders import PER_NODE, UnknownPlaceholderError, placeholders

GuestName = Annotated[str, Field(pattern=PLAN_NAME, max_length=63)]
Word = Annotated[str, Field(max_length=8192)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]


class Guest(BaseModel):
    """A real detector: how it is started, and what is known of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    apiVersion: Literal["gameday/v1"]
    kind: Literal["Guest"]
    name: GuestName
    """Name of the guest: lower-case letters, digits and `-`."""
    version: str = Field(default="", max_length=200)
    """The version that was built, like `v1.34 (commit 6632ca6)`; reports and pages name it."""
    detector: str | None = Field(default=None, min_length=1, max_length=500)
    """Its detector profile: a name, or a path beside this file; null: nobody has written down what it should do."""
    cluster: Literal["embedded", "lab"] = "embedded"
    """The control plane that it needs: `lab` for one that needs objects which the stand-in does not serve."""
    needs: str = Field(default="", max_length=500)
    """The reason why it needs that control plane, for the refusal of another one."""
    command: tuple[Word, ...] = Field(min_length=1, max_length=200)
    """The program and its arguments, with placeholders. No shell reads it."""
    environment: dict[VariableName, Word] = Field(default={}, max_length=100)
    """Variables beside PATH, HOME (its `{state}`) and KUBECONFIG (its `{kubeconfig}`), with placeholders."""
    says: str | None = Field(default=None, min_length=1, max_length=500)
    """A regular expression. An output line that matches is the guest's own word that it noticed a fault."""

    @field_validator("says")
    @classmethod
    def _is_a_regular_expression(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise PydanticCustomError("regex", "is not a regular expression: {why}", {"why": str(error)}) from None
        return value

    @model_validator(mode="after")
    def _has_known_placeholders(self) -> Guest:
        if not self.command[0]:
            raise conflict(("command", 0), "the first word is the program, and it is empty")
        for path, text in self._texts():
            if "\0" in text:
                raise conflict(path, "a program takes no text with the character U+0000")
            try:
                tuple(placeholders(text))
            except UnknownPlaceholderError as error:
                raise conflict(path, str(error)) from None
        return self

    @property
    def per_node(self) -> bool:
        """True if it runs once for each GPU node; else it runs once for the cluster."""
        return any(not PER_NODE.isdisjoint(placeholders(text)) for _, text in self._texts())

    def _texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        yield from ((("command", index), word) for index, word in enumerate(self.command))
        yield from ((("environment", name), text) for name, text in self.environment.items())
