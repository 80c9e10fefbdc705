"""What a flow run's page shows at a real Prefect server: state, tags, red steps, verdict; and its one attempt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prefect import flow, tags
from prefect._flow_run_suspension import mark_flow_run_suspension_requested
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import FlowRun, Log, State
from prefect.client.schemas.sorting import LogSort
from prefect.runtime import flow_run
from prefect.states import Cancelling, Suspended

from gameday.checks.outcome import RunOutcome, RunResult
from gameday.errors import StepFailedError
from gameday.exit_codes import ExitCode
from gameday.flows.attempts import stop_when_suspended
from gameday.flows.game_day import game_day
from gameday.flows.judged_state import judged_state
from gameday.flows.season import season
from gameday.history.events import StepEnded
from gameday.run.abort import Abort
from gameday.runs.season_record import SeasonResult
from gameday.tasks import judged_step
from gameday.tasks.outcome_on_page import code_of
from gameday.values.results import Cleanliness, Step, StepOutcome
from tests.rehearsal.processes import until
from tests.report.run_builder import cut_off, passing, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SENTENCE = "alert GpuXidCritical firing for n1 was not seen within 15 s"


def played(body: Callable[[], State[Any]]) -> tuple[FlowRun, list[Log]]:
    """Return the flow run of a flow that does this, and its log."""
    ids: list[UUID] = []

    @flow(name="played", persist_result=False)
    def run() -> State[Any]:
        ids.append(UUID(str(flow_run.id)))
        return body()

    run(return_state=True)
    with get_client(sync_client=True) as client:
        which = LogFilter(flow_run_id=LogFilterFlowRunId(any_=ids))
        return client.read_flow_run(ids[0]), client.read_logs(which, sort=LogSort.TIMESTAMP_ASC)


RESULTS = [
    (RunOutcome.PASSED, Cleanliness.CLEAN, ExitCode.PASSED, "Completed"),
    (RunOutcome.FAILED, Cleanliness.CLEAN, ExitCode.FAILED, "Failed"),
    (RunOutcome.FAILED, Cleanliness.DIRTY, ExitCode.DIRTY, "Failed"),
    (RunOutcome.PASSED, Cleanliness.UNKNOWN, ExitCode.UNKNOWN, "Failed"),
    (RunOutcome.REFUSED, Cleanliness.CLEAN, ExitCode.REFUSED, "Failed"),
]


@pytest.mark.parametrize(("outcome", "cluster", "code", "name"), RESULTS)
def test_the_state_is_prefects_own_and_the_outcome_is_in_the_tags(
    outcome: RunOutcome, cluster: Cleanliness, code: ExitCode, name: str, whole_prefect: None
) -> None:
    result = RunResult(outcome=outcome, cleanliness=cluster, exit_code=code, why="because")
    run, logs = played(lambda: judged_state(code, result.why, result))
    assert run.state is not None
    said = f"{outcome.capitalize()}, cluster {cluster}. because"
    assert (run.state.name, run.state.message) == (name, said)
    assert set(run.tags) == {f"outcome:{outcome}", f"cluster:{cluster}"}
    assert code_of(run.tags) == code
    assert logs[0].message.startswith(f"{said} (written at ")
    assert all("Traceback" not in line.message for line in logs)


@pytest.mark.parametrize("code", [code for code in ExitCode if code <= ExitCode.REFUSED])
def test_a_seasons_tags_stand_for_its_exit_code(code: ExitCode, whole_prefect: None) -> None:
    run, _ = played(lambda: judged_state(code, "because", SeasonResult(exit_code=code, why="because")))
    assert code_of(run.tags) == code
    assert run.state is not None
    assert run.state.name == ("Completed" if code is ExitCode.PASSED else "Failed")


def test_a_step_with_a_broken_expectation_is_red_and_the_flow_goes_on(whole_prefect: None) -> None:
    ended: list[StepEnded] = []
    run: Any = SimpleNamespace(history=lambda: SimpleNamespace(last=lambda kind: ended[-1]))

    @judged_step("await alert")
    def broken(run: Any) -> None:
        ended.append(StepEnded(step=Step.AWAIT_ALERT, outcome=StepOutcome.BROKEN, why=SENTENCE))

    @judged_step("recover")
    def held(run: Any, faults: list[str]) -> list[str]:
        ended.append(StepEnded(step=Step.RECOVER, outcome=StepOutcome.DONE, why=""))
        return faults

    @judged_step("qa node")
    def stopped(run: Any) -> None:
        raise StepFailedError("the server does not answer")

    def body() -> State[Any]:
        broken(run)
        assert held(run, ["a fault"]) == ["a fault"]
        with pytest.raises(StepFailedError, match="does not answer"):
            stopped(run)
        return judged_state(ExitCode.FAILED, "because", None)

    found, logs = played(body)
    states: dict[str, tuple[str | None, str | None]] = {}

    def all_ended() -> bool:
        """Read the task runs; the server learns of each by events, some time after it ended."""
        with get_client(sync_client=True) as client:
            tasks = client.read_task_runs(flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": [found.id]}}))
        states.update({one.name.rpartition("-")[0]: (one.state_name, one.state.message) for one in tasks if one.state})
        return len(states) == 3 and {name for name, _ in states.values()} == {"Failed", "Completed"}

    until(all_ended, 60, "the server shows the three steps as ended")
    assert states["await alert"] == ("Failed", SENTENCE)
    assert states["recover"][0] == "Completed"
    assert states["qa node"][0] == "Failed"
    assert all("Traceback" not in line.message for line in logs)


def test_a_cancel_that_no_worker_handles_ends_as_cancelled_with_the_verdict(whole_prefect: None) -> None:
    def body() -> State[Any]:
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(UUID(str(flow_run.id)), Cancelling())
        return judged_state(ExitCode.ABORTED, "Aborted by operator.", None)

    run, logs = played(body)
    assert run.state is not None
    assert (run.state.name, run.state.message) == ("Cancelled", "Aborted, cluster clean. Aborted by operator.")
    assert all("UnfinishedRun" not in line.message for line in logs)


def test_suspend_asks_the_run_to_stop_and_interrupts_nothing_after_that(whole_prefect: None) -> None:
    abort = Abort()

    def body() -> State[Any]:
        stop_when_suspended(abort)
        suspended: State[Any] = Suspended()
        assert mark_flow_run_suspension_requested(UUID(str(flow_run.id)), suspended)
        assert "suspended" in str(abort.requested)
        return judged_state(ExitCode.ABORTED, str(abort.requested), None)

    run, _ = played(body)
    assert run.state is not None
    assert (run.state.name, "outcome:aborted" in run.tags) == ("Failed", True)
    assert "a person suspended the flow run" in (run.state.message or "")


@pytest.mark.parametrize("first", ["its fault was in", "season-1", "before its fault"])
def test_a_flow_run_that_broke_something_is_not_played_again(first: str, whole_prefect: None, tmp_path: Path) -> None:
    events = passing() if first == "its fault was in" else cut_off(passing(), 0.0)
    id = "season-1" if first == "season-1" else write(tmp_path / "20260303-090000-7f3a", events).name
    with tags(f"run:{id}", "outcome:aborted", "cluster:clean"):
        again = (season if first == "season-1" else game_day)(
            profile="none.yaml", reports=str(tmp_path), return_state=True
        )
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(again.state_details.flow_run_id)
    if first == "before its fault":
        assert "outcome:refused" in run.tags, "it was played again: the profile is what it was refused for"
        return
    assert run.state is not None
    assert run.state.name == "Failed"
    assert f"nothing was broken again: this flow run has played {id} already" in (run.state.message or "")
    assert "outcome:aborted" in run.tags, "the first attempt's"
