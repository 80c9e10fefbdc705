"""Doctor's answer after a run in which something went unnoticed, for page, terminal and exports."""

from __future__ import annotations

from gameday.checks.outcome import RunOutcome
from gameday.history.events import DoctorAsked, DoctorFinding
from gameday.history.journal import History
from gameday.values.models import FrozenModel

_MOST_LINES = 3


class DoctorsWord(FrozenModel):
    """Doctor's answer; one of `findings` and `nothing_amiss` is empty."""

    findings: tuple[DoctorFinding, ...]
    nothing_amiss: str
    cut_short: str

    @property
    def lines(self) -> list[str]:
        """Return a line for each of the first next steps, with the finding behind it; a single line if all is well."""
        by_fix = {one.fix or one.found: one for one in reversed(self.findings)}
        first = [one for one in self.findings if one in by_fix.values()][:_MOST_LINES]
        return [f"{one.found}; {one.fix}" if one.fix else one.found for one in first] or [self.nothing_amiss]


def doctors_word(history: History, outcome: RunOutcome) -> DoctorsWord | None:
    """Return doctor's answer; None for a run that passed, or if it was not asked."""
    asked = history.last(DoctorAsked)
    if asked is None or outcome is RunOutcome.PASSED:
        return None
    passed = f"all {asked.checks} checks of log store, detector, rules and silences are passed"
    return DoctorsWord(
        findings=asked.findings,
        nothing_amiss="" if asked.findings else f"{passed}; look into the detector's own log and its policy",
        cut_short=asked.cut_short,
    )
