"""Three-valued verdicts and the one function that folds them into a run's outcome."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class Status(StrEnum):
    HELD = "held"
    BROKEN = "broken"
    UNKNOWN = "unknown"


class Verdict(BaseModel):
    """One expectation against what was measured."""

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
