"""A season's exit code: the worst of its runs."""

from __future__ import annotations

import pytest

from gameday.checks.outcome import RunOutcome, RunResult
from gameday.runs.season_record import fold_season
from gameday.values.results import Cleanliness

CLEAN, DIRTY, UNKNOWN = Cleanliness.CLEAN, Cleanliness.DIRTY, Cleanliness.UNKNOWN


def result(outcome: RunOutcome, cleanliness: Cleanliness = CLEAN) -> RunResult:
    return RunResult(outcome=outcome, cleanliness=cleanliness, exit_code=0, why="")


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([result(RunOutcome.PASSED)], 0),
        ([result(RunOutcome.PASSED), result(RunOutcome.UNKNOWN)], 2),
        ([result(RunOutcome.UNKNOWN), result(RunOutcome.FAILED)], 1),
        ([result(RunOutcome.FAILED), result(RunOutcome.ABORTED)], 3),
        ([result(RunOutcome.ABORTED), result(RunOutcome.PASSED, UNKNOWN)], 2),
        ([result(RunOutcome.PASSED, UNKNOWN), result(RunOutcome.ABORTED, DIRTY)], 4),
        ([result(RunOutcome.REFUSED), result(RunOutcome.REFUSED)], 5),
        ([result(RunOutcome.REFUSED), result(RunOutcome.PASSED)], 2),
        ([result(RunOutcome.REFUSED), result(RunOutcome.FAILED)], 1),
    ],
)
def test_the_worst_of_its_runs_is_the_seasons(results: list[RunResult], code: int) -> None:
    assert fold_season(results).exit_code == code


def test_a_season_without_runs_changed_nothing() -> None:
    assert fold_season([]).exit_code == 5


def test_a_stopped_season_is_aborted_however_good_its_runs_were() -> None:
    folded = fold_season([result(RunOutcome.PASSED)], "operator: SIGINT received")
    assert folded.exit_code == 3
    assert folded.why.endswith("The season was stopped: operator: SIGINT received.")


def test_a_stopped_season_whose_every_run_was_refused_changed_nothing() -> None:
    assert fold_season([result(RunOutcome.REFUSED)], "operator: SIGINT received").exit_code == 5


def test_what_every_run_came_to_is_counted() -> None:
    folded = fold_season([result(RunOutcome.PASSED), result(RunOutcome.PASSED), result(RunOutcome.FAILED)])
    assert folded.why == "3 game-days: 2 passed, 1 failed; the cluster is clean."
