"""The run's identity: its plan, cluster, operator and time."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from gameday.history.events import RunEnded, RunStarted, TargetsChosen
from gameday.report.run_folder import RunFolder

ORDER = 108
TITLE = "Identity"
GROUP = "The run and its files"


class RunIdentity(BaseModel):
    started: RunStarted | None
    targets: TargetsChosen | None
    first_at: datetime | None
    last_at: datetime | None
    seconds: float | None
    closed: bool
    detector: str | None = Field(description="the detector that the plan names; None: it names none")
    environment: str | None
    change: str | None


def build(run: RunFolder) -> RunIdentity:
    records = run.history.records
    return RunIdentity(
        started=run.started,
        targets=run.history.last(TargetsChosen),
        first_at=records[0].at if records else None,
        last_at=records[-1].at if records else None,
        seconds=(records[-1].at - records[0].at).total_seconds() if records else None,
        closed=run.history.last(RunEnded) is not None,
        detector=run.named_detector,
        environment=run.plan.purpose.environment if run.plan else None,
        change=run.plan.purpose.change if run.plan else None,
    )
