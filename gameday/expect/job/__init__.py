"""The expectation of a job's own recovery: how long it stood still, and how many steps it had to repeat."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from gameday.documents.fields import PLAN_NAME, Bound, DocumentModel, LabelKey, LabelValue, conflict
from gameday.documents.percent import PartPercent
from gameday.expect.base import Expectation
from gameday.expect.probes import Pattern
from gameday.values.nodes import NodeRole
from gameday.values.patterns import STEP_GROUP, steps_in


class ExpectedJob(DocumentModel):
    """The recovery of a job that runs on the target, by the steps that it prints."""

    namespace: str = Field(pattern=PLAN_NAME, max_length=63)
    """Namespace of the job's pods. The run's account needs `get` on pods/log there (deploy/job-log)."""
    selector: dict[LabelKey, LabelValue] = Field(min_length=1)
    """Labels of the job's pods, and of those that take their place."""
    container: str | None = Field(default=None, pattern=PLAN_NAME, max_length=63)
    """Container with the log that is read; null: the pod's only one."""
    step: Pattern = r"step (?P<step>[0-9]+)"
    """Pattern of a log line with a step; the group `step` is its number."""
    must_stop: bool = False
    """If true, a pod of the job on the target must end or restart, as the fault intends."""
    resumes_within: Bound
    """Longest time from the last step before the job's pod ended to the first step of the pod that took its place."""
    lost_steps_at_most: int | None = Field(default=None, ge=0)
    """Most steps that may be repeated; null: any number."""
    slows_below: PartPercent | None = None
    """Share of its steps per second before the fault that the job must fall below during the fault; null: any rate.

    It suits a job with ranks that wait for each other, and a fault that slows one of its GPUs."""

    @model_validator(mode="after")
    def _names_its_group(self) -> ExpectedJob:
        try:
            has_group = f"(?P<{STEP_GROUP}>" in self.step and steps_in(self.step, [""]) == [None]
        except ValueError:
            has_group = False
        if not has_group:
            raise conflict(("step",), "write the number as (?P<step>[0-9]+), and every other group as (?:...)")
        return self


class Job(Expectation):
    needs: ClassVar = NodeRole.GPU

    job: ExpectedJob | None = None
    """Recovery of a job that runs on the target (docs/job-recovery.md)."""
