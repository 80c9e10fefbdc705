"""Verdicts: the answer of one check to one expectation. `outcome` folds them into the run's outcome."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from gameday.values.results import Step


class Status(StrEnum):
    """The answer to an expectation.

    NOT_ASKED: the run's flow leaves out the step that the expectation is about, so the outcome is computed from the
    others. A step that was asked for and did not run leaves its expectations UNKNOWN.
    """

    HELD = "held"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    NOT_ASKED = "not asked"


class Verdict(BaseModel):
    """The verdict on one expectation: its bound, the measurement, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    check: str = Field(description="stable id, e.g. 'alert-fires'")
    expectation: str = Field(description="a sentence for people")
    bound: str = ""
    within_s: float | None = Field(default=None, description="the bound in seconds, where it is a duration")
    measured: str = ""
    dated: str = Field(default="", description="what dated the measured time, how exactly, and when it was seen")
    status: Status
    step: Step | None = Field(
        default=None, description="the step that the expectation is about; none: the whole run, whatever its flow asks"
    )
    why: str = ""
    seconds: float | None = Field(default=None, description="what was measured, where it is a duration")
    evidence: tuple[int, ...] = Field(default=(), description="seq numbers of the history's records")
    node: str | None = None


def containment_verdict(
    check: str,
    expectation: str,
    bound: str,
    measured: str,
    status: Status,
    why: str,
    node: str | None = None,
    seconds: float | None = None,
) -> Verdict:
    """Return a verdict of the step that judges whether a fault is contained."""
    return Verdict(
        check=check,
        expectation=expectation,
        bound=bound,
        measured=measured,
        status=status,
        step=Step.VERIFY_TAINT,
        why=why,
        seconds=seconds,
        node=node,
    )
