"""Wait for what the plan bounds and judge it by its own time, as the verdict does: both then say the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from gameday.checks.deadlines import Sighting
from gameday.checks.facts import bounded
from gameday.checks.verdict import Status
from gameday.documents.fields import format_duration
from gameday.history.journal import History
from gameday.run.run import Run
from gameday.run.steps import StepResult

# What came within its bound is seen later: Prometheus stamps an alert with the begin of its group's evaluation, an
# Event bears its writer's time, and a watch is behind both. Our own choice of patience, spent on what is missing only.
_SEEN_LATER = timedelta(seconds=2)


def await_in_time(
    run: Run,
    result: StepResult,
    what: str,
    within: timedelta,
    node: str,
    sightings: Callable[[History], Sequence[Sighting]],
) -> bool:
    """Whether it came, in time or not; what did not come in time breaks the step."""

    def came() -> datetime | None:
        return next((one.at for one in sightings(run.journal.history())), None)

    at = first_seen(run, what, within, node, came)
    judge(run, result, what, within, node, at)
    return at is not None


def first_seen(
    run: Run, what: str, within: timedelta, node: str, came: Callable[[], datetime | None], every_s: float = 0.1
) -> datetime | None:
    """When it came, by its own time, which may be after the bound; None where it was not seen a moment later either."""
    if at := run.wait(what, run.left_of(within, node), came, every_s):
        return at
    return run.wait(f"a last look, for {what}", run.left_of(within + _SEEN_LATER, node), came, every_s)


def judge(run: Run, result: StepResult, what: str, within: timedelta, node: str, at: datetime | None) -> None:
    """Break the step over what did not come, or came too late."""
    if at is None:
        result.broken(f"{what} was not seen within {format_duration(within)}")
        return
    status, _, why = bounded(run.injected()[node].written_at, at, within)
    if status is Status.BROKEN:
        result.broken(f"{what}: {why}")
    elif status is Status.UNKNOWN:
        result.unknown(f"{what}: {why}")
