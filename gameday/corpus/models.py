"""A case: what a node shows, step by step, and the right state of that node at the end."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gameday.documents.fields import PLAN_NAME, DocumentModel, conflict

_MOST_REPEATS = 100_000
"""More than any step here: the largest storm that was reported had 800,000 lines, of which 29 differed."""


class Answer(StrEnum):
    """The right state of the node at the end of a case."""

    ACT = "act"
    """Out of service: NVIDIA's catalogue or the driver's own words ask for a reset, a restart or support."""
    LEAVE = "leave"
    """At work: they ask for nothing, or only for the application to be started again; or the fault is repaired."""


class Family(StrEnum):
    """Kinds of cases, in the order of the page."""

    APPLICATION = "application's own error"
    MEMORY = "memory"
    LOST = "lost GPU"
    FIRMWARE = "firmware and engine"
    RECOVERY = "recovery action"
    NVLINK = "NVLink"
    NVSWITCH = "NVSwitch"
    WORDS = "driver's words without an Xid"
    FORM = "form of the line"
    ORDER = "repetition, replay and repair"
    NOISE = "no fault at all"
    DCGM = "values of DCGM"
    NVML = "events of NVML"


class Layer(StrEnum):
    """The sources that show a fault to a detector."""

    KERNEL_LOG = "kernel log"
    DCGM = "DCGM"
    NVML = "NVML"


class Happens(StrEnum):
    """Events on the node between what it shows."""

    BOOT = "boot"
    """The machine boots: its kernel log begins again."""
    RESET = "gpu-reset"
    """The GPU of the lines before is reset, with success."""
    RETURN = "return"
    """The repair is over, and the node is given back to work."""


class DcgmSample(DocumentModel):
    """A sample of a field in DCGM's cache."""

    field: Annotated[str, Field(pattern=r"^DCGM_FI_[A-Z0-9_]+$", max_length=100)]
    """The field's name, as dcgm-exporter's series has it."""
    before: float = Field(default=0, allow_inf_nan=False)
    """Its value until then."""
    value: float = Field(allow_inf_nan=False)
    """Its value from then on."""


class NvmlEvent(DocumentModel):
    """An event of NVML's event set."""

    type: Annotated[str, Field(pattern=r"^nvmlEventType\w+$", max_length=60)]
    """Its type, by NVML's name."""
    data: Annotated[int, Field(ge=0)] = 0
    """Its data: for a critical Xid the code."""


class Step(DocumentModel):
    """A part of a case, shown by the node or happening to it: exactly one key, and `repeat` beside `lines`."""

    lines: Annotated[str, Field(min_length=1, max_length=20_000)] | None = None
    """Lines of the kernel log as a detector's source has them, with its prefix; a line for each."""
    repeat: Annotated[int, Field(ge=1, le=_MOST_REPEATS)] = 1
    """The number of times that the lines come, one after the other."""
    dcgm: tuple[DcgmSample, ...] = ()
    """Samples of DCGM at one moment."""
    nvml: tuple[NvmlEvent, ...] = ()
    """Events of NVML, in their order."""
    happens: Happens | None = None
    """An event on the node."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        keys = [key for key in ("lines", "dcgm", "nvml", "happens") if getattr(self, key)]
        if len(keys) != 1:
            raise conflict((keys[-1],) if keys else (), "a step has exactly one of lines, dcgm, nvml, happens")
        if self.repeat > 1 and self.lines is None:
            raise conflict(("repeat",), "only lines are repeated: take it out")
        return self


class Case(DocumentModel):
    """A labelled case."""

    apiVersion: Literal["gameday/v1"]
    kind: Literal["DetectorCase"]
    """Distinguishes the file from a plan."""
    name: Annotated[str, Field(pattern=PLAN_NAME, max_length=63)]
    """The case's name; the file is called after it."""
    title: Annotated[str, Field(min_length=1, max_length=120)]
    """The case in a sentence's length."""
    family: Family
    """The kind of case, under which its plays are summed up."""
    layer: Layer
    """The source that shows it."""
    steps: tuple[Step, ...]
    """Its parts in their order."""
    plan: Annotated[str, Field(pattern=PLAN_NAME, max_length=63)] | None = None
    """The shipped plan that plays the case; None: `gameday cases --plans` may write one (gameday/corpus/plays.py)."""
    answer: Answer
    """act: at the end the node must be out of service. leave: it must be in service."""
    why: Annotated[str, Field(min_length=1, max_length=400)]
    """The reason, in NVIDIA's or the driver's own words."""
    source: Annotated[str, Field(min_length=1, max_length=300)]
    """The origin of what the node shows: captured by whom, documented where, or constructed in which test."""
    link: Annotated[str, Field(pattern=r"^https://[\w.-]+/\S*$", max_length=300)]
    """The page that decides the answer."""

    @model_validator(mode="after")
    def _is_of_its_layer(self) -> Self:
        shown = {Layer.KERNEL_LOG: "lines", Layer.DCGM: "dcgm", Layer.NVML: "nvml"}[self.layer]
        for number, step in enumerate(self.steps):
            if not step.happens and not getattr(step, shown):
                raise conflict(("steps", number), f"a case of layer {self.layer} shows {shown}")
        if all(step.happens for step in self.steps):
            raise conflict(("steps",), f"a step must show {shown}")
        return self
