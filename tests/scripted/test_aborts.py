"""Game-days that somebody or something stops, in each step: the undo is done, and the steps say what was reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.history.events import Aborted, Event, FaultInjected, FaultUndone, GuardChecked, StepEnded, StepStarted
from gameday.host import memory
from gameday.run.run import Run
from gameday.values.results import Cleanliness, Step, StepOutcome
from tests.support.scripted import game_day
from tests.support.scripted.game_day import Played, play
from tests.support.scripted.plans import QUICK, loaded
from tests.support.scripted.script import NodeChange, Script
from tests.support.scripted.wire import Moment


def stopped(reports: Path, step: Step, stop: Callable[[Run], object], **settings: Any) -> Played:
    """Play a game-day that is stopped as one of its steps begins."""
    runs: list[Run] = []

    def act(run: Run) -> None:
        runs.append(run)
        game_day.steps(run)

    def on_write(event: Event, moment: Moment) -> None:
        if isinstance(event, StepStarted) and (event.step, moment) == (step, "after"):
            stop(runs[0])

    return play(loaded(QUICK), reports=reports, act=act, on_write=on_write, **settings)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("step", list(Step))
def test_a_request_to_stop_undoes_the_run_and_is_reported(step: Step, times: int, reports: Path) -> None:
    def stop(run: Run) -> None:
        for _ in range(times):
            run.record.abort.request("operator", "SIGINT received")

    played = stopped(reports, step, stop)
    assert (played.outcome, played.result.exit_code) == (RunOutcome.ABORTED, 3)
    ended = {event.step: event.outcome for event in played.history.of(StepEnded)}
    assert ended[step] is StepOutcome.ABORTED
    assert step is Step.QA_NODE or ended[Step.QA_NODE] is StepOutcome.NOT_REACHED
    assert played.cluster.left() == []


def test_an_opt_in_that_is_taken_back_aborts_the_run(reports: Path) -> None:
    taken_back = NodeChange.label("gameday.dev/opt-in", None, after_s=0.1)

    def changes_its_mind(script: Script) -> Script:
        return replace(script, changes=(taken_back,), fires=(10.0,))

    played = play(loaded(QUICK), changes_its_mind, reports=reports)
    assert played.history.of(FaultInjected)
    assert [(one.by, "no longer carries" in one.why) for one in played.history.of(Aborted)] == [("guard", True)]
    assert {one.cleanliness for one in played.history.of(FaultUndone)} == {Cleanliness.CLEAN}
    assert (played.result.exit_code, played.cluster.left()) == (3, [])


def test_a_rehearsal_that_runs_short_of_memory_aborts_and_undoes_its_fault(
    reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"

    def leave(percent: int) -> None:
        meminfo.write_text(f"MemTotal: {100 * 2**20} kB\nMemAvailable: {percent * 2**20} kB\n")

    leave(50)
    monkeypatch.setattr(memory, "MEMINFO", meminfo)
    monkeypatch.setattr(memory, "OWN_GROUP", tmp_path / "none")
    played = stopped(reports, Step.AWAIT_ALERT, lambda run: leave(9), rehearsal=tmp_path)
    looks = [(one.phase, one.ok) for one in played.history.of(GuardChecked) if one.guardrail == "free memory"]
    assert looks[0] == ("before", True)
    assert ("during", False) in looks
    assert {one.cleanliness for one in played.history.of(FaultUndone)} == {Cleanliness.CLEAN}
    (aborted,) = played.history.of(Aborted)
    assert "9.0 of this machine's 100.0 GiB free, 9.0%" in aborted.why
    assert (played.result.exit_code, played.cluster.left()) == (3, [])
