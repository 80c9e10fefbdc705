"""The results of a comparison's game-days, with what their arms say may break and must break."""

from __future__ import annotations

from collections.abc import Sequence

from gameday.checks.facts import first_few
from gameday.checks.outcome import RunOutcome, RunResult, exit_code, fold_outcome
from gameday.checks.verdict import Status, Verdict
from gameday.history.journal import History
from gameday.runs.comparison_record import ArmRecord

_JUDGED = (RunOutcome.PASSED, RunOutcome.FAILED, RunOutcome.UNKNOWN)
"""The outcomes of runs that were played to their end; any other says nothing about the arm's control."""


def arm_result(arm: ArmRecord, history: History, verdicts: Sequence[Verdict]) -> RunResult:
    """Return a game-day's result as that of its arm.

    If a check in `may_break` or `must_break` breaks, that does not fail the game-day. A check in `must_break` fails it
    if all its expectations held, because the control then controls nothing; if it was not judged, the result is
    unknown. A cluster that is dirty, or not provably clean, stays so in every arm.
    """
    result = fold_outcome(history, verdicts, {*arm.may_break, *arm.must_break})
    if result.outcome not in _JUDGED:
        return result
    held, unjudged = _controls(arm, verdicts)
    if held:
        said = f"The negative control controls nothing: {first_few(held)} must break, and held"
        also = f" {result.why}" if result.outcome is RunOutcome.FAILED else ""
        return _ended(result, RunOutcome.FAILED, f"{said}.{also}")
    if unjudged and result.outcome is RunOutcome.PASSED:
        return _ended(result, RunOutcome.UNKNOWN, f"Not judged, and must break: {first_few(unjudged)}.")
    return result


def _controls(arm: ArmRecord, verdicts: Sequence[Verdict]) -> tuple[list[str], list[str]]:
    """Return the checks that must break but held, and those that could not be judged."""
    held, unjudged = [], []
    for check in arm.must_break:
        statuses = {verdict.status for verdict in verdicts if verdict.check == check}
        if statuses == {Status.HELD}:
            held.append(check)
        elif Status.BROKEN not in statuses:
            unjudged.append(check)
    return held, unjudged


def _ended(result: RunResult, outcome: RunOutcome, why: str) -> RunResult:
    code = exit_code(outcome, result.cleanliness)
    return result.model_copy(update={"outcome": outcome, "why": why, "exit_code": code})
