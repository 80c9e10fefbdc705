"""Begin and end a step in the history, no matter what happens inside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from gameday.errors import AbortedError, AdapterError, RefusedError, StepFailedError
from gameday.history.events import StepEnded, StepStarted
from gameday.run.run import Run
from gameday.values.results import Step, StepOutcome

_SEVERITY = (StepOutcome.DONE, StepOutcome.UNKNOWN, StepOutcome.BROKEN)


class StepResult:
    """The findings of a step so far; the worst is its outcome. A broken expectation does not end the run."""

    def __init__(self) -> None:
        self.outcome = StepOutcome.DONE
        self.reasons: list[str] = []

    def mark_broken(self, why: str) -> None:
        """Add a broken expectation."""
        self._add(StepOutcome.BROKEN, why)

    def mark_unknown(self, why: str) -> None:
        """Add an expectation that could not be judged."""
        self._add(StepOutcome.UNKNOWN, why)

    def _add(self, outcome: StepOutcome, why: str) -> None:
        self.outcome = max(self.outcome, outcome, key=_SEVERITY.index)
        self.reasons.append(why)


@contextmanager
def step(run: Run, which: Step, bound: timedelta | None = None) -> Iterator[StepResult]:
    """Note the start and the end of a step around its work.

    If a server does not answer, the step ends as unknown and the run with it. A step that can go on without that server
    catches AdapterError itself and calls `result.mark_unknown`.

    Args:
        run: The run.
        which: The step.
        bound: The longest time that the plan lets the step wait; None if the plan sets no bound.

    Yields:
        The findings, to which the step adds.

    Raises:
        StopRunError: The step was refused, aborted, or could not do its work.
    """
    run.record.abort.check()
    run.record.begin_step(which)
    run.note(StepStarted(step=which, deadline_s=bound.total_seconds() if bound else None))
    result = StepResult()
    try:
        try:
            yield result
        except (AdapterError, StepFailedError):
            # During a long sleep another run may have undone this one: then an error says nothing about this step.
            run.ledger.check_lease()
            raise
    except AbortedError as error:
        run.note(StepEnded(step=which, outcome=StepOutcome.ABORTED, why=error.why))
        raise
    except (RefusedError, StepFailedError) as error:
        run.note(StepEnded(step=which, outcome=StepOutcome.UNKNOWN, why=_reason(error.why, error.hint)))
        raise
    except AdapterError as error:
        run.note(StepEnded(step=which, outcome=StepOutcome.UNKNOWN, why=str(error)))
        raise StepFailedError(str(error)) from None
    except Exception as error:
        run.note(StepEnded(step=which, outcome=StepOutcome.UNKNOWN, why=f"{type(error).__name__}: {error}"))
        raise
    run.note(StepEnded(step=which, outcome=result.outcome, why="; ".join(result.reasons)))


def _reason(why: str, hint: str) -> str:
    return f"{why}; {hint}" if hint else why
