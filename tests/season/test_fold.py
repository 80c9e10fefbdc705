"""A season's exit code: the worst of its runs."""

from __future__ import annotations

import pytest

from gameday.checks.outcome import Outcome, RunResult
from gameday.season.record import fold_season
from gameday.values.results import Cleanliness

CLEAN, DIRTY, UNKNOWN = Cleanliness.CLEAN, Cleanliness.DIRTY, Cleanliness.UNKNOWN


def result(outcome: Outcome, cleanliness: Cleanliness = CLEAN) -> RunResult:
    return RunResult(outcome=outcome, cleanliness=cleanliness, exit_code=0, why="")


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([result(Outcome.PASSED)], 0),
        ([result(Outcome.PASSED), result(Outcome.UNKNOWN)], 2),
        ([result(Outcome.UNKNOWN), result(Outcome.FAILED)], 1),
        ([result(Outcome.FAILED), result(Outcome.ABORTED)], 3),
        ([result(Outcome.ABORTED), result(Outcome.PASSED, UNKNOWN)], 2),
        ([result(Outcome.PASSED, UNKNOWN), result(Outcome.ABORTED, DIRTY)], 4),
        ([result(Outcome.REFUSED), result(Outcome.REFUSED)], 5),
        ([result(Outcome.REFUSED), result(Outcome.PASSED)], 2),
        ([result(Outcome.REFUSED), result(Outcome.FAILED)], 1),
    ],
)
def test_the_worst_of_its_runs_is_the_seasons(results: list[RunResult], code: int) -> None:
    assert fold_season(results).exit_code == code


def test_a_season_without_runs_changed_nothing() -> None:
    assert fold_season([]).exit_code == 5


def test_a_stopped_season_is_aborted_however_good_its_runs_were() -> None:
    folded = fold_season([result(Outcome.PASSED)], "operator: SIGINT received")
    assert folded.exit_code == 3
    assert folded.why.endswith("The season was stopped: operator: SIGINT received.")


def test_a_stopped_season_whose_every_run_was_refused_changed_nothing() -> None:
    assert fold_season([result(Outcome.REFUSED)], "operator: SIGINT received").exit_code == 5


def test_what_every_run_came_to_is_counted() -> None:
    folded = fold_season([result(Outcome.PASSED), result(Outcome.PASSED), result(Outcome.FAILED)])
    assert folded.why == "3 game-days: 2 passed, 1 failed; the cluster is clean."
