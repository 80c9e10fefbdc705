"""The owners' probes and a job's own steps over a whole game-day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.history.events import ProbeAnswered
from tests.support.scripted.game_day import Played, play
from tests.support.scripted.plans import JOB, changed, loaded, without_repair
from tests.support.scripted.script import AgentScript, JobScript, Script

QUIET = {"stays_schedulable_for": "1s", "allow_other_alerts": True}
Values = tuple[tuple[float, float | None], ...]


def contained(fault: dict[str, Any], **expect: Any) -> dict[str, Any]:
    return changed(without_repair(fault), "expect", QUIET | expect)


def answering(values: Values) -> Callable[[Script], Script]:
    return lambda script: replace(script, queries={"counted": values})


def probed(reports: Path, values: Values, bound: dict[str, str]) -> Played:
    probe = {"name": "counted", "promql": {"query": "counted", "at_least": 1}, "every": "1s", **bound}
    plan = contained({"type": "xid", "xid": 94, "hold": "60s"}, probes=[probe])
    return play(loaded(plan), answering(values), reports=reports)


@pytest.mark.parametrize(
    ("values", "status"),
    [
        (((0.0, 0.0), (20.0, 1.0)), Status.HELD),
        (((0.0, 0.0), (31.0, 1.0)), Status.BROKEN),
        (((0.0, 0.0), (10.0, None)), Status.UNKNOWN),
    ],
    ids=["in time", "too late", "no series"],
)
def test_a_query_must_come_to_hold(values: Values, status: Status, reports: Path) -> None:
    played = probed(reports, values, {"within": "30s"})
    assert (played.status("probe-holds"), played.cluster.left()) == (status, [])


@pytest.mark.parametrize(
    ("values", "status"),
    [
        (((0.0, 1.0), (22.0, 0.0)), Status.HELD),
        (((0.0, 1.0), (10.0, 0.0), (12.0, 1.0)), Status.BROKEN),
        (((0.0, 1.0), (10.0, None)), Status.UNKNOWN),
    ],
    ids=["long enough", "for two seconds", "no series"],
)
def test_a_query_must_stay(values: Values, status: Status, reports: Path) -> None:
    played = probed(reports, values, {"stays_for": "20s"})
    assert (played.status("probe-stays"), played.cluster.left()) == (status, [])


@pytest.mark.parametrize(("works_s", "status"), [(1.0, Status.HELD), (31.0, Status.BROKEN)])
def test_a_job_is_sent_again_and_again(works_s: float, status: Status, reports: Path) -> None:
    job = {"command": ["train"], "ends_within": "30s"}
    plan = contained({"type": "xid", "xid": 94, "hold": "90s"}, probes=[{"name": "w", "job": job, "stays_for": "20s"}])

    def slow(script: Script) -> Script:
        return replace(script, agents={"probe": AgentScript(works_s=works_s)})

    played = play(loaded(plan), slow, reports=reports)
    if status is Status.HELD:
        assert (played.status("probe-stays"), played.outcome) == (status, RunOutcome.PASSED)
        assert len(played.history.of(ProbeAnswered)) > 2
    else:
        assert played.outcome is RunOutcome.REFUSED
    assert played.cluster.left() == []


@pytest.mark.parametrize(
    ("must_stop", "outcome"), [(False, RunOutcome.PASSED), (True, RunOutcome.FAILED)], ids=["may go on", "must stop"]
)
def test_a_contained_error_does_not_interrupt_the_job(must_stop: bool, outcome: RunOutcome, reports: Path) -> None:
    plan = contained({"type": "xid", "xid": 43}, job=JOB | {"must_stop": must_stop})
    played = play(loaded(plan), lambda script: replace(script, job=JobScript()), reports=reports)
    assert (played.status("job-resumes"), played.outcome) == (Status.HELD, outcome)
    assert not must_stop or played.status("job-stops") is Status.BROKEN


@pytest.mark.parametrize(("under_fault_s", "status"), [(2.0, Status.HELD), (1.1, Status.BROKEN)])
def test_a_slow_gpu_slows_its_job(under_fault_s: float, status: Status, reports: Path) -> None:
    fault = {"type": "clock_lock", "gpu": 0, "sm_clock_mhz": 1200, "hold": "60s"}
    plan = contained(fault, job=JOB | {"slows_below": "80%"})
    plan = changed(plan, "expect.stays_schedulable_for", "16s")
    job = JobScript(step_s=1.0, under_fault_s=under_fault_s)
    played = play(loaded(plan), lambda script: replace(script, job=job), reports=reports)
    assert (played.status("job-slows"), played.status("job-resumes")) == (status, Status.HELD)
    assert played.cluster.left() == []
