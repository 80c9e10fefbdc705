"""Doctor is asked at the end of a game-day in which the cluster noticed nothing, and of no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from gameday.checks.outcome import RunOutcome
from gameday.errors import AdapterError
from gameday.history.events import DoctorAsked, FaultUndone, RunEnded
from gameday.run.run import Run
from gameday.values.results import Cleanliness, Step
from tests.support.scripted.game_day import Played, play, steps
from tests.support.scripted.script import Script


def asked(played: Played) -> DoctorAsked | None:
    return played.history.last(DoctorAsked)


def test_a_run_in_which_nothing_was_noticed_keeps_doctors_answer_given_after_the_undo(reports: Path) -> None:
    played = play(change=Script.without_detector, reports=reports)
    answer = asked(played)
    assert played.result.outcome is RunOutcome.FAILED and answer
    assert answer.steps == (Step.AWAIT_ALERT, Step.VERIFY_TAINT)
    assert answer.checks > len(answer.findings) and not answer.cut_short
    assert ("detectors", "the node-health controller watches", None) in named(answer)
    kinds = [type(record.event) for record in played.history.records]
    undone = len(kinds) - 1 - kinds[::-1].index(FaultUndone)
    assert undone < kinds.index(DoctorAsked) < kinds.index(RunEnded)


def test_a_run_in_which_the_cluster_noticed_asks_nobody(reports: Path) -> None:
    played = play(reports=reports)
    assert played.result.outcome is RunOutcome.PASSED
    assert asked(played) is None


def test_an_aborted_run_does_not_wait_for_doctor(reports: Path) -> None:
    def steps_and_signal(run: Run) -> None:
        run.record.while_waiting(lambda: abort_in(Step.VERIFY_TAINT, run))
        steps(run)

    played = play(change=Script.without_detector, act=steps_and_signal, reports=reports)
    assert played.result.outcome is RunOutcome.ABORTED
    assert asked(played) is None


def test_a_server_that_is_away_is_the_answer_and_costs_the_run_nothing(reports: Path) -> None:
    def steps_and_outage(run: Run) -> None:
        steps(run)
        run.servers.prometheus.build_info = away(run)  # type: ignore[method-assign]

    played = play(change=Script.without_detector, act=steps_and_outage, reports=reports)
    answer = asked(played)
    assert answer and ("prometheus", "can be asked", False) in named(answer)
    assert played.result.cleanliness is Cleanliness.CLEAN
    assert played.history.last(RunEnded)


def test_slow_servers_end_the_questions(reports: Path) -> None:
    def steps_and_sloth(run: Run) -> None:
        steps(run)
        labels = run.servers.loki.labels

        def late() -> frozenset[str]:
            run.clock.sleep(11.0)
            return labels()

        run.servers.loki.labels = late  # type: ignore[method-assign]

    answer = asked(play(change=Script.without_detector, act=steps_and_sloth, reports=reports))
    assert answer and (answer.checks, answer.cut_short) == (1, "the servers took more than 10 s")


def named(answer: DoctorAsked) -> list[tuple[str, str, bool | None]]:
    return [(one.area, one.check, one.ok) for one in answer.findings]


def abort_in(step: Step, run: Run) -> None:
    if run.record.step is step:
        run.record.abort.request("operator", "SIGINT received")


def away(run: Run) -> Callable[[], NoReturn]:
    def refuse() -> NoReturn:
        raise AdapterError(run.profile.prometheus.url, "connection refused", "is it running?")

    return refuse
