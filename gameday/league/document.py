"""A league's document: which detectors play, and which faults they have to notice."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from gameday.documents.explain import explain
from gameday.documents.fields import PLAN_NAME, Bound, DocumentModel, conflict
from gameday.documents.read import decode, read
from gameday.documents.source import Source, parse
from gameday.errors import DocumentError

KIND = "League"
"""The `kind:` that distinguishes a league's file from a plan's."""
OURS = "ours"
"""The word that stands for our own node-health controller among the guests."""

GuestFile = Annotated[str, Field(pattern=r"^ours$|\.ya?ml$", max_length=1024)]


class League(DocumentModel):
    """Detectors that are to be compared, each in a rehearsal of its own."""

    apiVersion: Literal["gameday/v1"]
    kind: Literal["League"]
    name: str = Field(pattern=PLAN_NAME, max_length=63)
    """Name of the league: lower-case letters, digits and `-`."""
    title: str = Field(default="Which detector notices which GPU fault?", min_length=1, max_length=200)
    """Heading of its page."""
    guests: tuple[GuestFile, ...] = Field(min_length=1, max_length=50)
    """Files of guests, relative to this file; the word `ours` is our own controller."""
    plans: tuple[str, ...] = Field(default=(), max_length=500)
    """Shipped plans' names, or plan files relative to this file; none: every shipped plan that is not dangerous and
    whose fault enters at the kernel log, DCGM's cache or NVML."""
    nodes: int = Field(default=40, ge=2, le=1000)
    """Virtual GPU nodes of each rehearsal. More than plans: a guest that writes elsewhere is seen on nodes that no plan
    breaks."""
    gpus: int = Field(default=8, ge=1, le=16)
    """GPUs of each node."""
    seed: int = 1
    """Chooses the nodes: the same ones for each detector."""
    at_once: int = Field(default=8, ge=1, le=100)
    """Nodes that may be broken at the same time."""
    within: Bound = timedelta(minutes=2)
    """Longest time that a plan may wait for a signal by its own bounds; one that may wait longer is left out."""

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        for key in ("guests", "plans"):
            names: tuple[str, ...] = getattr(self, key)
            for index, name in enumerate(names):
                if name in names[:index]:
                    raise conflict((key, index), f"{name} is named twice")
        return self


def read_league(path: Path) -> League:
    """Read and validate a league's file. Raises DocumentError."""
    return parse_league(parse(decode(read(path), str(path)), str(path)), path)


def parse_league(parsed: Source, path: Path) -> League:
    """Return the league of a document that is already parsed. Raises DocumentError."""
    try:
        return League.model_validate(parsed.data)
    except ValidationError as error:
        raise DocumentError(explain(error, parsed, str(path), League)) from None
