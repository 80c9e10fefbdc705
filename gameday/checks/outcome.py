"""The one function that folds a history and its verdicts into the run's outcome and exit code.

A run that is still running has no outcome yet: unknown. Else, the first that applies:

1. refused: a guard said no, and no fault went in;
2. aborted: an operator or a guard stopped it;
3. failed: any expectation is broken, or the cluster is dirty, or a step found an expectation broken;
4. unknown: any expectation could not be judged, none was asked, the history was not closed
   (a killed run), cleanliness was not proved, or a step broke off;
5. passed.

Broken beats unknown, in a killed run too: what was seen to break stays broken.
An expectation about a step that the flow leaves out was not asked, and counts nowhere.

Exit code, first that applies: dirty 4; cleanliness unknown 2; then by outcome
refused 5, aborted 3, failed 1, unknown 2, passed 0. Codes 0, 1, 3 and 5
promise a clean cluster (docs/index.md, Exit codes), so none of them is given without
proof of one; 2 promises nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from gameday.checks.facts import first_few
from gameday.checks.fault_state import FaultState, fault_state, when_stopped, where_fault_is
from gameday.checks.node_diff import RESTORES_NODE, differences_left_by_run, left_to_owners
from gameday.checks.undo_proof import undo_state
from gameday.checks.verdict import Status, Verdict
from gameday.exit_codes import ExitCode
from gameday.history.events import (
    Aborted,
    FaultUndone,
    IntentRecorded,
    Refused,
    RepairChainEnded,
    RunEnded,
    StepEnded,
    StepStarted,
)
from gameday.history.journal import History
from gameday.values.results import Cleanliness, StepOutcome


class RunOutcome(StrEnum):
    """The end of a run, folded from its verdicts and from the cluster's state."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    ABORTED = "aborted"
    REFUSED = "refused"


_NOT_DONE = {StepOutcome.BROKEN: RunOutcome.FAILED, StepOutcome.UNKNOWN: RunOutcome.UNKNOWN}
"""The outcome if all verdicts held but a step was not done, by that step's outcome; the worse first."""
EXIT_CODES = {outcome: ExitCode[outcome.name] for outcome in RunOutcome}


class RunResult(BaseModel):
    """The outcome of a run, the state in which it left the cluster, and the exit code and the sentence for both."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: RunOutcome
    cleanliness: Cleanliness
    exit_code: int
    why: str
    has_report: bool = Field(default=True, exclude=True)
    """False if the run's folder could not take a report, so that a file system that hangs is not asked again."""
    running: bool = Field(
        default=False,
        exclude=True,
        description="it was not over when it was looked at, so that nothing of it is judged",
    )


def fold_outcome(history: History, verdicts: Sequence[Verdict], may_break: Collection[str] = ()) -> RunResult:
    """Fold a run's history and its verdicts into its result.

    Args:
        history: The run's history.
        verdicts: Every verdict on it.
        may_break: Checks, such as `alert-fires`, that may break or stay unjudged: those that an arm of a comparison
            names. All others still have to hold, and the cluster has to be proved clean.
    """
    state, doubt = cleanliness(history)
    if history.is_running:
        code = exit_code(RunOutcome.UNKNOWN, state)
        return RunResult(
            outcome=RunOutcome.UNKNOWN, cleanliness=state, exit_code=code, why=still_running(history), running=True
        )
    asked = [verdict for verdict in verdicts if verdict.status is not Status.NOT_ASKED]
    excused = [verdict for verdict in asked if verdict.status is not Status.HELD and verdict.check in may_break]
    outcome, why = _outcome(history, [verdict for verdict in asked if verdict not in excused], state, excused)
    if excused and outcome is RunOutcome.PASSED:
        why = f"{why}; {len(excused)} more need not hold: {_named(excused)}"
    if state is not Cleanliness.CLEAN:
        why = f"{why}; the cluster is {state}: {doubt}" if why else f"The cluster is {state}: {doubt}"
    return RunResult(outcome=outcome, cleanliness=state, exit_code=exit_code(outcome, state), why=f"{why.rstrip('.')}.")


def still_running(history: History) -> str:
    """Return what a run that is still running does, and since when."""
    begun = list(history.with_times(StepStarted))
    if begun:
        record, event = begun[-1]
        return f"It is still running: the step '{event.step}' began at {record.at:%H:%M:%S} UTC."
    since = f" since {history.records[0].at:%H:%M:%S} UTC" if history.records else ""
    return f"It is still running{since}: no step has begun."


def exit_code(outcome: RunOutcome, state: Cleanliness) -> int:
    if state is Cleanliness.DIRTY:
        return ExitCode.DIRTY
    return ExitCode.UNKNOWN if state is Cleanliness.UNKNOWN else EXIT_CODES[outcome]


def ended_with(code: int) -> tuple[RunOutcome, Cleanliness]:
    """Return an outcome and a cluster state with this exit code, for many runs that have one code together."""
    if code == ExitCode.DIRTY:
        return RunOutcome.UNKNOWN, Cleanliness.DIRTY
    outcome = RunOutcome[ExitCode(code).name]
    return outcome, Cleanliness.UNKNOWN if outcome is RunOutcome.UNKNOWN else Cleanliness.CLEAN


def worst_exit_code(runs: Iterable[tuple[RunOutcome, Cleanliness]]) -> int:
    """Return one exit code for many runs.

    The first that applies: dirty 4; cleanliness unknown 2; aborted 3, failed 1, unknown 2, passed 0. Refused, 5,
    promises that nothing was changed, so it is given only if every run was refused. A refused run among others counts
    as unknown, and so does having no runs at all.
    """
    ended = set(runs)
    states, outcomes = {state for _, state in ended}, {outcome for outcome, _ in ended}
    if Cleanliness.DIRTY in states:
        return ExitCode.DIRTY
    if Cleanliness.UNKNOWN in states:
        return ExitCode.UNKNOWN
    for outcome in (RunOutcome.ABORTED, RunOutcome.FAILED):
        if outcome in outcomes:
            return EXIT_CODES[outcome]
    return EXIT_CODES[outcomes.pop() if len(outcomes) == 1 else RunOutcome.UNKNOWN]


def cleanliness(history: History) -> tuple[Cleanliness, str]:
    """Return the worst state, and why, by the run's own last look, each undo's reading and the nodes' differences."""
    if dirt := _dirt(history):
        return Cleanliness.DIRTY, dirt
    doubt = _doubt(history)
    return (Cleanliness.UNKNOWN, doubt) if doubt else (Cleanliness.CLEAN, "")


def nodes_left_quarantined(history: History) -> frozenset[str]:
    """Return the nodes that the run left quarantined; none if it left, or may have left, anything else as well."""
    dirty, residue = _intents(history, Cleanliness.DIRTY), differences_left_by_run(history)
    also = [intent for intent in dirty if intent.undo != RESTORES_NODE or intent.node is None]
    if also or _intents(history, Cleanliness.UNKNOWN) or not all(one.is_quarantine for one in residue):
        return frozenset()
    return frozenset({intent.node for intent in dirty if intent.node} | {one.node for one in residue})


def _dirt(history: History) -> str:
    ended = history.last(RunEnded)
    if residue := differences_left_by_run(history):
        return first_few([str(difference) for difference in residue])
    if dirty := _intents(history, Cleanliness.DIRTY):
        return first_few([f"{intent.object} ({intent.undo})" for intent in dirty])
    return "the run's own last look found something left" if ended and ended.cleanliness is Cleanliness.DIRTY else ""


def _doubt(history: History) -> str:
    ended = history.last(RunEnded)
    if unproven := _intents(history, Cleanliness.UNKNOWN):
        return f"no proof that this was undone: {first_few([intent.act for intent in unproven])}"
    if ended is None:
        return "the history is cut off and a damaged line may hide a change" if history.damaged else ""
    # A refused run that announced no change had nothing to look for.
    nothing_done = history.last(Refused) is not None and not history.of(IntentRecorded)
    unsure = ended.cleanliness is Cleanliness.UNKNOWN and not nothing_done
    return "the run's own last look ended unknown" if unsure else ""


def _intents(history: History, state: Cleanliness) -> list[IntentRecorded]:
    return [intent for intent in history.of(IntentRecorded) if undo_state(history, intent.intent) is state]


def _outcome(
    history: History, verdicts: Sequence[Verdict], state: Cleanliness, excused: Sequence[Verdict]
) -> tuple[RunOutcome, str]:
    refused, aborted = history.last(Refused), history.last(Aborted)
    if refused and (went_in := fault_state(history)) is not FaultState.IN:
        before = " before anything was broken" if went_in is FaultState.NONE else f", and {went_in}"
        return RunOutcome.REFUSED, f"Refused{before}: {refused.why}"
    if aborted:
        said = f"Aborted by {aborted.by}: {aborted.why}{_fault_meanwhile(history)}"
        return RunOutcome.ABORTED, f"{said}{_by_reaper(history)}{_to_owners(history)}"
    if broken := [verdict for verdict in verdicts if verdict.status is Status.BROKEN]:
        return RunOutcome.FAILED, f"{len(broken)} of {len(verdicts)} expectations did not hold: {_named(broken)}"
    return (RunOutcome.FAILED, "") if state is Cleanliness.DIRTY else _unbroken(history, verdicts, state, excused)


def _to_owners(history: History) -> str:
    """Return what others have put on targets and is still there; empty if there is nothing."""
    left = [
        f"{'the cordon' if one.what == 'scheduling' else one.what} of {one.node}" for one in left_to_owners(history)
    ]
    return f"; left to its owner, who put it there during the run: {first_few(left)}" if left else ""


def _fault_meanwhile(history: History) -> str:
    """Return how far the fault was when the run was aborted, and whether it is out again."""
    record, aborted = list(history.with_times(Aborted))[-1]
    when, now = when_stopped(history, record), where_fault_is(history)
    comma = "," if aborted.by == "guard" else ""  # a guard's reason is a sentence of its own
    return f"{comma} {when}{'; ' if now else ''}{now}" if when else ""


def _by_reaper(history: History) -> str:
    """Return that the reaper undid the run's changes, and when; empty if it did nothing."""
    undone = [(record, event) for record, event in history.with_times(FaultUndone) if event.by == "reaper"]
    if not undone:
        return ""
    left = any(undo_state(history, event.intent) is not Cleanliness.CLEAN for _, event in undone)
    at = f"{undone[-1][0].at:%H:%M:%S} UTC"
    if left:
        return f"; the reaper came at {at}, and not all that the run had changed is proved undone"
    return f"; what the run had changed was undone by the reaper at {at}"


def _unbroken(
    history: History, verdicts: Sequence[Verdict], state: Cleanliness, excused: Sequence[Verdict]
) -> tuple[RunOutcome, str]:
    unknown = [verdict for verdict in verdicts if verdict.status is Status.UNKNOWN]
    if history.last(RunEnded) is None:
        why = "The run's history stops before its end: it was killed, it crashed, or its disk took no more"
        last = [record for record in history.records if record.boot == history.records[0].boot][-1:]
        when = when_stopped(history, last[0]) if last else ""
        return RunOutcome.UNKNOWN, f"{why}{', ' if when else ''}{when}{_by_reaper(history)}"
    if unknown:
        return (
            RunOutcome.UNKNOWN,
            f"{len(unknown)} of {len(verdicts)} expectations could not be judged: {_named(unknown)}",
        )
    if not verdicts or state is Cleanliness.UNKNOWN:
        return RunOutcome.UNKNOWN, "" if verdicts else "Nothing was judged"
    ends = [ended for ended in history.of(StepEnded) if ended.step not in {verdict.step for verdict in excused}]
    if step := next((one for worst in _NOT_DONE for one in ends if one.outcome is worst), None):
        return _NOT_DONE[step.outcome], f"Step '{step.step}' ended {step.outcome}: {step.why}"
    if kept_out := [ended.node for ended in history.of(RepairChainEnded) if not ended.in_service]:
        out = first_few(kept_out)
        return RunOutcome.PASSED, f"All {len(verdicts)} expectations held, and the cluster keeps {out} out of service"
    return RunOutcome.PASSED, f"All {len(verdicts)} expectations held and the cluster was left as it was found"


def _named(verdicts: Sequence[Verdict]) -> str:
    """Return the first two verdicts in words, since a sentence has room for no more; the table has the rest."""
    return first_few([f"{one.expectation} — {one.why or one.status}" for one in verdicts], most=2)
