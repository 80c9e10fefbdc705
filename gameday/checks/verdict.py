"""Three-valued verdicts: what one check says of one expectation. `outcome` folds them into the run's."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class Status(StrEnum):
    HELD = "held"
    BROKEN = "broken"
    UNKNOWN = "unknown"


class Verdict(BaseModel):
    """The verdict on one expectation: its bound, the measurement, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    check: str = Field(description="stable id, e.g. 'alert-fires'")
    expectation: str = Field(description="a sentence for people")
    bound: str = ""
    measured: str = ""
    status: Status
    why: str = ""
    seconds: float | None = Field(default=None, description="what was measured, where it is a duration")
    evidence: tuple[int, ...] = Field(default=(), description="seq numbers of the history's records")
    node: str | None = None
