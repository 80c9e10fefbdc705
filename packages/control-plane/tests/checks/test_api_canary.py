"""The verdicts on the API canary: latency, errors and gaps under load, and everything well again without it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gameday.checks.verdict import Status, Verdict
from gameday.history.events import FaultInjected, FaultUndone
from gameday.history.frames import Frames
from gameday_control_plane.checks.api_canary import Window, check, fault_window, longest_gap
from gameday_control_plane.events import ApiCanarySampled
from gameday_control_plane.expect.control_plane import ExpectedApiCanary, ExpectedOutage
from gameday_control_plane.values.api_requests import ApiCanarySample
from tests.report.run_builder import NODE, PLAN, Timed, history_of, passing

EXPECTED = PLAN.model_copy(
    update={"expect": PLAN.expect.model_copy(update={"api_canary": ExpectedApiCanary(after_for=timedelta(seconds=10))})}
)
RUN = passing()
HISTORY = history_of(RUN)
WRITTEN = next(event.written_at for event in HISTORY.of(FaultInjected))
UNDONE = next(record.at for record, _ in HISTORY.with_times(FaultUndone))


def sample(after_fault_s: float, seconds: float = 0.01, status: int = 200, **others: Any) -> ApiCanarySample:
    sent = WRITTEN + timedelta(seconds=after_fault_s)
    return ApiCanarySample(**{"kind": "get", "sent_at": sent, "seconds": seconds, "status": status, **others})


def steady(begin_s: float, end_s: float, step_s: float = 0.1) -> list[ApiCanarySample]:
    return [sample(begin_s + number * step_s) for number in range(int((end_s - begin_s) / step_s))]


def judged(*samples: ApiCanarySample, expected: ExpectedApiCanary | None = None) -> dict[str, Verdict]:
    history = history_of([Timed(0, ApiCanarySampled(node=NODE, samples=samples)), *RUN])
    expect = EXPECTED.expect.model_copy(update={"api_canary": expected or EXPECTED.expect.api_canary})
    plan = EXPECTED.model_copy(update={"expect": expect})
    return {verdict.check: verdict for verdict in check(plan, history, Frames())}


LENGTH_S = (UNDONE - WRITTEN).total_seconds()


def test_a_client_that_notices_nothing_holds_everything() -> None:
    verdicts = judged(*steady(-5, LENGTH_S + 10))
    assert {one.status for one in verdicts.values()} == {Status.HELD}
    assert set(verdicts) == {"api-canary-latency", "api-canary-errors", "api-canary-gap", "api-canary-after"}


def test_slow_answers_under_load_break_the_latency_only() -> None:
    slow = [sample(number / 2, seconds=1.5) for number in range(8)]
    verdicts = judged(*steady(0, LENGTH_S + 10), *slow)
    assert verdicts["api-canary-latency"].status is Status.BROKEN
    assert verdicts["api-canary-errors"].status is Status.HELD


@pytest.mark.parametrize(
    "failed", [{"status": 429}, {"status": 503}, {"status": 0, "error": "timeout"}, {"error": "cut"}]
)
def test_a_refused_or_unanswered_request_breaks_the_errors(failed: dict[str, Any]) -> None:
    verdicts = judged(*steady(0, LENGTH_S + 10), sample(1.0, **failed))
    assert verdicts["api-canary-errors"].status is Status.BROKEN
    assert "get" in verdicts["api-canary-errors"].why


def test_a_request_that_the_canarys_own_end_cut_off_counts_nowhere() -> None:
    verdicts = judged(*steady(-5, LENGTH_S + 10), sample(1.0, status=0, error="ended"))
    assert verdicts["api-canary-errors"].status is Status.HELD


def test_a_silence_longer_than_the_bound_breaks_the_gap() -> None:
    middle = LENGTH_S / 2
    verdicts = judged(*steady(0, middle - 3), *steady(middle + 3, LENGTH_S + 10))
    assert verdicts["api-canary-gap"].status is Status.BROKEN


def test_without_samples_nothing_is_known() -> None:
    assert {one.status for one in judged().values()} == {Status.UNKNOWN}


def test_few_samples_can_break_the_latency_and_never_hold_it() -> None:
    assert judged(*steady(0, 1))["api-canary-latency"].status is Status.UNKNOWN
    assert judged(*steady(0, 1), sample(1, seconds=1.8))["api-canary-latency"].status is Status.BROKEN


def test_a_failure_once_the_load_is_gone_breaks_the_last_verdict() -> None:
    verdicts = judged(*steady(0, LENGTH_S + 10), sample(LENGTH_S + 5, status=503))
    assert verdicts["api-canary-after"].status is Status.BROKEN
    assert verdicts["api-canary-errors"].status is Status.HELD


def test_a_slow_request_that_began_before_the_fault_counts_as_under_load() -> None:
    window = fault_window(HISTORY, NODE)
    assert window is not None
    early = ApiCanarySampled(node=NODE, samples=(sample(-1, seconds=3), sample(-2, seconds=0.5)))
    history = history_of([Timed(0, early), *RUN])
    assert [one.seconds for one in window.samples(history, NODE)] == [3]


@given(st.lists(st.floats(0, 20), max_size=30))
def test_the_longest_gap_is_at_least_the_mean_one_and_at_most_the_window(moments: list[float]) -> None:
    window = Window(WRITTEN, WRITTEN + timedelta(seconds=20))
    samples = [sample(moment, seconds=0) for moment in moments]
    gap = longest_gap(samples, window)
    assert gap <= 20
    assert not samples or gap >= 20 / (len(samples) + 1) - 1e-6


@pytest.mark.parametrize(
    ("silent_s", "status"), [(1.0, Status.BROKEN), (3.0, Status.HELD), (5.0, Status.BROKEN), (LENGTH_S, Status.BROKEN)]
)
def test_an_outage_is_neither_too_short_nor_too_long(silent_s: float, status: Status) -> None:
    outage = ExpectedOutage(at_least=timedelta(seconds=2), at_most=timedelta(seconds=4))
    samples = [*steady(-5, 1), *steady(1 + silent_s, LENGTH_S + 10)]
    verdicts = judged(*samples, expected=ExpectedApiCanary(outage=outage))
    assert set(verdicts) == {"api-canary-outage", "api-canary-after"}, "the other bounds hold only without the fault"
    assert verdicts["api-canary-outage"].status is status


def test_an_outage_that_nobody_sampled_is_unknown() -> None:
    outage = ExpectedOutage(at_least=timedelta(seconds=2), at_most=timedelta(seconds=4))
    verdicts = judged(sample(LENGTH_S + 1), expected=ExpectedApiCanary(outage=outage))
    assert verdicts["api-canary-outage"].status is Status.UNKNOWN


def test_an_outage_whose_bounds_are_swapped_is_refused() -> None:
    with pytest.raises(ValidationError, match="swap the two"):
        ExpectedOutage(at_least=timedelta(seconds=4), at_most=timedelta(seconds=2))
