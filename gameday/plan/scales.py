"""The scales of a plan: the same experiment in other sizes, such as those of a published case.

A scale's changes are laid over the plan as those of an arm are (`gameday/plan/arms.py`); `--scale` chooses one.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from gameday.documents.fields import PLAN_NAME, DocumentModel, conflict
from gameday.documents.source import Source
from gameday.plan.arms import laid_over
from gameday.plan.rehearsal import MemoryLimit

AS_WRITTEN = "small"
"""The scale of the plan as its file has it."""
SETTABLE = ("arms", "baseline", "expect", "fault", "guardrails", "rehearsal", "settings")
"""The keys of a plan that a scale may change: those that decide its size, its duration and what must hold."""


class Scale(DocumentModel):
    """Another size of the same experiment, for `gameday rehearse --scale`."""

    title: str = Field(min_length=1, max_length=80)
    """The size in a few words, for the report's head."""
    memory: MemoryLimit
    """Memory, such as `20GiB`, that the whole rehearsal needs: it is refused on a machine with less to spare."""
    nodes: int | None = Field(default=None, ge=1, le=1000)
    """Least number of virtual GPU nodes; null: as many as `--nodes` says."""
    set: dict[str, Any] = Field(default={}, json_schema_extra={"propertyNames": {"enum": list(SETTABLE)}})
    """Keys of the plan with other values, written as in the plan and merged as those of an arm are: arms, baseline,
    expect, fault, guardrails, rehearsal and settings."""

    @model_validator(mode="after")
    def _sets_sizes(self) -> Scale:
        for key in self.set:
            if key not in SETTABLE:
                raise conflict(("set", key), f"a scale cannot set this, only {', '.join(SETTABLE)}")
        return self


def _not_as_written(name: str) -> str:
    if name == AS_WRITTEN:
        raise PydanticCustomError("scale", f"{AS_WRITTEN} is the plan as it is written: choose another name")
    return name


ScaleName = Annotated[str, Field(pattern=PLAN_NAME, max_length=16), AfterValidator(_not_as_written)]
Scales = dict[ScaleName, Scale]


def source_of_scale(source: Source, name: str, scale: Scale) -> Source:
    """Return the plan's document at a scale; keys that the scale sets have their place in the scale."""
    base = {key: value for key, value in source.data.items() if key != "scales"}
    head = {"name": f"{source.data['name']}-{name}", "title": f"{source.data['title']}: {scale.title}"}
    return laid_over(source, base, scale.set, ("scales", name), head)
