"""Wait for an expectation with a bound, and judge it by the signal's own time, as the verdict does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from gameday.checks.facts import judge_duration
from gameday.checks.verdict import Status
from gameday.documents.fields import format_duration
from gameday.expect.base import Sighting
from gameday.history.journal import History
from gameday.observe.injected_fault import InjectedFault
from gameday.run.run import Run
from gameday.run.steps import StepResult

# A signal is seen some time after it came: Prometheus stamps an alert with the start of its group's evaluation, an
# Event bears its writer's time, and a watch lags behind both. Our own choice, and only missing signals cost this time.
_LATEST_SIGHT = timedelta(seconds=2)


def await_within(
    run: Run,
    result: StepResult,
    what: str,
    bound: timedelta,
    fault: InjectedFault,
    sightings: Callable[[History], Sequence[Sighting]],
) -> bool:
    """Wait for an expectation and judge it; a late or missing one breaks the step.

    Args:
        run: The run.
        result: Receives the finding.
        what: The expectation, in words.
        bound: How long after the fault it may come.
        fault: The fault that is to cause it.
        sightings: Returns the sightings of it in a history.

    Returns:
        True if it came, in time or not.
    """
    seen = first_seen(run, what, bound, fault, lambda: next(iter(sightings(run.history())), None))
    judge(result, what, bound, fault, seen)
    return seen is not None


def first_seen(
    run: Run,
    what: str,
    bound: timedelta,
    fault: InjectedFault,
    sighted: Callable[[], Sighting | None],
    every_s: float = 0.1,
) -> Sighting | None:
    """Wait for an expectation, and a little longer than its bound.

    Args:
        run: The run.
        what: The expectation, in words.
        bound: How long after the fault it may come.
        fault: The fault that is to cause it.
        sighted: Returns how it came, by its own time; None until it was seen.
        every_s: Seconds between two calls of `sighted`.

    Returns:
        How it came, which may be after the bound; None if it was not seen.
    """
    if seen := run.wait(what, fault.time_left(bound, run.clock.now()), sighted, every_s):
        return seen
    return run.wait(
        f"a last look, for {what}", fault.time_left(bound + _LATEST_SIGHT, run.clock.now()), sighted, every_s
    )


def judge(result: StepResult, what: str, bound: timedelta, fault: InjectedFault, seen: Sighting | None) -> None:
    """Break the step if the expectation did not come (`seen` is None), or came too late."""
    if seen is None:
        result.mark_broken(f"{what} was not seen within {format_duration(bound)}")
        return
    status, _, why = judge_duration(fault.written_at, seen.at, bound, seen.dated)
    if status is Status.BROKEN:
        result.mark_broken(f"{what}: {why}")
    elif status is Status.UNKNOWN:
        result.mark_unknown(f"{what}: {why}")
