"""The name under which Prefect's pages show a season."""

from __future__ import annotations

import pytest

from gameday.exit_codes import ExitCode
from gameday.flows.season import season_state
from gameday.season.record import SeasonResult


@pytest.mark.parametrize(
    ("code", "name", "completed"),
    [
        (ExitCode.PASSED, "Passed", True),
        (ExitCode.FAILED, "Failed", False),
        (ExitCode.UNKNOWN, "Unknown", False),
        (ExitCode.ABORTED, "Aborted", False),
        (ExitCode.DIRTY, "Dirty", False),
        (ExitCode.REFUSED, "Refused", False),
    ],
)
def test_a_seasons_state_is_named_after_its_exit_code(code: ExitCode, name: str, completed: bool) -> None:
    state = season_state(SeasonResult(exit_code=code, why="because"))
    assert (state.name, state.message, state.is_completed()) == (name, "because", completed)
