"""Begin and end a step in the history, whatever happens inside it."""

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
    """What a step found out so far; the worst finding is its outcome. A broken expectation ends no run."""

    def __init__(self) -> None:
        self.outcome = StepOutcome.DONE
        self.reasons: list[str] = []

    def broken(self, why: str) -> None:
        self._add(StepOutcome.BROKEN, why)

    def unknown(self, why: str) -> None:
        self._add(StepOutcome.UNKNOWN, why)

    def _add(self, outcome: StepOutcome, why: str) -> None:
        self.outcome = max(self.outcome, outcome, key=_SEVERITY.index)
        self.reasons.append(why)


@contextmanager
def step(run: Run, which: Step, bound: timedelta | None = None) -> Iterator[StepResult]:
    """The frame around a step's work.

    A server that does not answer ends the step as unknown and the run with it
    (StepFailedError); a step that can go on without that server catches
    AdapterError itself and calls `result.unknown`.
    """
    run.abort.check()
    run.step = which
    run.note(StepStarted(step=which, deadline_s=bound.total_seconds() if bound else None))
    result = StepResult()
    try:
        try:
            yield result
        except (AdapterError, StepFailedError):
            # What a run no longer finds that slept, somebody else took away: that is not this step's to judge.
            run.check_still_ours()
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
