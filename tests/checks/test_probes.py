"""Verdicts on probes: held, broken, unknown between answers and without them, and in a history that was cut off."""

from __future__ import annotations

from typing import Any

from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.expect.probes import ExpectedProbe
from gameday.history.events import FaultInjected, ProbeAnswered
from gameday.history.frames import Frames
from tests.report.run_builder import PLAN, Timed, at, history_of, passing, without

FAULT_AT = next(timed.event.written_at for timed in passing() if isinstance(timed.event, FaultInjected))
FAULT_S = (FAULT_AT - at(0)).total_seconds()


def answer(second: float, holds: bool | None, detail: str = "d") -> Timed:
    """An answer so long after the fault."""
    when = FAULT_S + second
    event = ProbeAnswered(probe="p", asks="http", holds=holds, detail=detail, asked_at=at(when), at=at(when))
    return Timed(0, event)


def judge(*timed: Timed, run: list[Timed] | None = None, **keys: Any) -> Verdict:
    probe = ExpectedProbe.model_validate({"name": "p", "http": {"url": "http://x/"}, "timeout": "1s", **keys})
    plan = PLAN.model_copy(update={"expect": PLAN.expect.model_copy(update={"probes": (probe,)})})
    history = history_of([*timed, *(passing() if run is None else run)])
    found = [one for one in run_checks(plan, history, Frames()) if one.check.startswith("probe")]
    assert len(found) == 1, found
    return found[0]


def test_what_comes_in_time_holds() -> None:
    verdict = judge(answer(-5, False), answer(1, False), answer(3, True), within="5s")
    assert (verdict.status, verdict.seconds, verdict.check) == (Status.HELD, 3.0, "probe-holds")


def test_an_answer_from_before_the_fault_counts_for_nothing() -> None:
    verdict = judge(answer(-1, True), answer(1, False), answer(3, False), answer(6, False), within="5s")
    assert (verdict.status, verdict.why) == (Status.BROKEN, "it did not hold: d")


def test_what_comes_too_late_is_broken_only_if_it_was_looked_at_after_the_bound() -> None:
    late = judge(answer(4, False), answer(5.5, False), answer(7, True), within="5s")
    between = judge(answer(4, False), answer(7, True), within="5s")
    assert (late.status, between.status) == (Status.BROKEN, Status.UNKNOWN)
    assert "between two answers" in between.why


def test_what_was_not_asked_or_not_readable_is_unknown() -> None:
    assert judge(within="5s").status is Status.UNKNOWN
    assert judge(answer(2, None, "refused"), answer(6, None, "refused"), within="5s").why.endswith("refused")
    gap = judge(answer(1, False), within="30s")  # the run was cut off, or the thread died
    assert (gap.status, "could not be read for 29.0 s" in gap.why) == (Status.UNKNOWN, True)


def test_it_stays_only_if_every_answer_held_and_they_are_close() -> None:
    good = [answer(second, True) for second in (-1, 1, 3, 5, 7, 9, 11)]
    assert judge(*good, stays_for="10s").status is Status.HELD
    lost = judge(*good[:3], answer(4, False, "status 503"), *good[4:], stays_for="10s")
    assert (lost.status, lost.why) == (Status.BROKEN, "it did not hold 4.0 s after the fault: status 503")
    assert judge(*good[:3], answer(4, None), *good[4:], stays_for="10s").status is Status.UNKNOWN
    assert judge(answer(1, True), answer(20, True), stays_for="20s").status is Status.UNKNOWN
    assert judge(*good, answer(12, False), stays_for="10s").status is Status.HELD


def test_without_a_fault_nothing_was_reached() -> None:
    run = without(passing(), lambda event: isinstance(event, FaultInjected))
    verdict = judge(answer(1, True), run=run, stays_for="10s")
    assert (verdict.status, verdict.why.startswith("not reached")) == (Status.UNKNOWN, True)


def test_it_returns_after_the_remediation_and_not_before() -> None:
    assert judge(answer(-1, True), answer(200, True), returns_within="600s").status is Status.HELD
    still = judge(answer(-1, True), answer(200, False, "status 503"), returns_within="600s")
    assert (still.status, still.why) == (Status.BROKEN, "it does not hold: status 503")
    assert judge(answer(-1, True), answer(200, None, "gone"), returns_within="600s").status is Status.UNKNOWN
    assert judge(answer(-1, True), answer(0.1, True), returns_within="600s").status is Status.UNKNOWN
