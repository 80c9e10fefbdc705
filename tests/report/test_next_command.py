"""What a person is told to do after a run, by how it ended and where."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.checks.outcome import RunOutcome, RunResult
from gameday.history.events import RunStarted
from gameday.report.next_command import next_command
from gameday.values.results import Cleanliness

RUN = "gameday run xid-79.yaml --profile 'my cluster.yaml'"


def told(outcome: str, cleanliness: str = "clean", **changes: Any) -> str:
    fields: dict[str, Any] = {
        "run_id": "r",
        "plan_name": "p",
        "plan_sha256": "0",
        "gameday_version": "1",
        "trigger": "manual",
        "operator": "ada",
        "cluster": "c",
        "cluster_uid": "u",
        "server_version": "v1.37.1",
        "command": RUN,
    }
    ended = changes.pop("ended", True)
    fields |= changes
    result = RunResult(outcome=RunOutcome(outcome), cleanliness=Cleanliness(cleanliness), exit_code=0, why="")
    found = next_command(RunStarted(**fields), result, ended=ended)
    return found.command if found else ""


@pytest.mark.parametrize("outcome", list(RunOutcome))
@pytest.mark.parametrize("cleanliness", ["dirty", "unknown"])
def test_a_cluster_that_is_not_proved_clean_is_reaped(outcome: str, cleanliness: str) -> None:
    assert told(outcome, cleanliness) == "gameday reap --profile 'my cluster.yaml'"
    assert told(outcome, cleanliness, command="gameday run x") == "gameday reap"


@pytest.mark.parametrize("outcome", ["failed", "unknown"])
def test_a_cluster_that_did_not_notice_is_examined(outcome: str) -> None:
    assert told(outcome) == "gameday doctor xid-79.yaml --profile 'my cluster.yaml'"


def test_a_killed_run_that_was_undone_is_run_again() -> None:
    assert told("unknown", ended=False) == RUN
    assert told("unknown", "unknown", ended=False) == "gameday reap --profile 'my cluster.yaml'"


@pytest.mark.parametrize("outcome", ["aborted", "refused"])
def test_a_run_that_was_stopped_is_run_again(outcome: str) -> None:
    assert told(outcome) == RUN


@pytest.mark.parametrize("cleanliness", ["clean", "dirty", "unknown"])
def test_a_rehearsals_cluster_is_gone(cleanliness: str) -> None:
    again = {"trigger": "rehearsal", "command": "gameday rehearse x"}
    assert told("failed", cleanliness, **again) == "gameday rehearse x"


def test_a_rehearsal_in_which_nobody_watched_is_run_again_with_a_detector() -> None:
    silent = {"trigger": "rehearsal", "command": "gameday rehearse x --detector off --repair auto"}
    assert told("failed", **silent) == "gameday rehearse x --repair auto"
    assert told("aborted", **silent) == silent["command"]
    foreign = {"trigger": "rehearsal", "command": "gameday rehearse x --detector konduktor"}
    assert told("failed", **foreign) == foreign["command"]


def test_a_season_is_run_again() -> None:
    assert told("failed", command="gameday coverage --profile p.yaml") == "gameday coverage --profile p.yaml"


def test_after_a_pass_there_is_nothing_to_do() -> None:
    assert told("passed") == ""
    assert (
        next_command(
            None, RunResult(outcome=RunOutcome.UNKNOWN, cleanliness=Cleanliness.CLEAN, exit_code=2, why=""), ended=True
        )
        is None
    )


def test_a_damaged_command_costs_only_itself() -> None:
    assert told("failed", command="gameday run 'x") == "gameday run 'x"
    assert told("failed", "dirty", command="gameday run 'x") == "gameday reap"
