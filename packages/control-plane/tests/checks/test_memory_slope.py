"""k by the stages of a storm: the line, what is no evidence, and a streamed LIST that costs next to nothing."""

from __future__ import annotations

from datetime import timedelta

import pandas as pd
import pytest
from pydantic import ValidationError

from gameday.checks.verdict import Status
from gameday.history.frames import Frames, empty
from gameday_control_plane.checks.memory_slope import STARTED, MemorySlope, check, judge, memory_slope
from gameday_control_plane.expect.control_plane import ExpectedContainment, ExpectedMemorySlope
from tests.control_plane.stages import BASE, COUNTS, LIST, frame, grown, scraped, staged
from tests.report.run_builder import PLAN, START, Timed, history_of, passing


def slope(rows: pd.DataFrame, counts: tuple[int, ...] = COUNTS) -> MemorySlope:
    found = memory_slope(rows, staged(counts))
    assert found
    return found


def test_the_line_finds_k_and_base_again() -> None:
    line = slope(scraped(*grown(3.2))).line
    assert line
    assert line.k == pytest.approx(3.2)
    assert line.base == pytest.approx(BASE)
    assert line.r2 == pytest.approx(1)


def test_streamed_lists_give_a_k_near_zero_although_no_memory_is_given_back() -> None:
    # As measured of a 1.37 server: 32 MiB more after thirty LISTs, in whatever order it comes.
    creeping = slope(scraped(BASE + 10e6, BASE + 20e6, BASE + 20e6, BASE + 32e6))
    assert creeping.k < 0.2
    assert judge(ExpectedMemorySlope(at_most=0.3), creeping)[0] is Status.HELD
    assert judge(ExpectedMemorySlope(at_least=1), creeping)[0] is Status.BROKEN


def test_a_drift_from_stage_to_stage_is_no_more_than_its_own_growth() -> None:
    # Equal steps lie on a line well enough (R² 0.92): only the arm that is streamed shows them for what they are.
    drifted = slope(scraped(*(BASE + step * 15e6 for step in (1, 2, 3, 4))))
    assert drifted.line
    assert drifted.line.r2 > 0.9
    assert drifted.k < 0.3
    assert judge(ExpectedMemorySlope(at_least=1), drifted)[0] is Status.BROKEN


def test_stages_below_an_earlier_peak_are_no_evidence() -> None:
    # Making the objects took more than the first two stages do: they say nothing, and must not flatten the line.
    high = BASE + 3.0 * 2 * LIST + 1
    found = slope(scraped(high, high, *grown(3.0)[2:], BASE + 3.0 * 16 * LIST, before=high), (1, 2, 4, 8, 16))
    assert [stage.is_evidence for stage in found.stages] == [False, False, True, True, True]
    assert found.line
    assert found.line.k == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("bounds", "k", "status"),
    [
        ({"at_least": 1}, 3.0, Status.HELD),
        ({"at_least": 4}, 3.0, Status.BROKEN),
        ({"at_most": 4}, 3.0, Status.HELD),
        ({"at_most": 1}, 3.0, Status.BROKEN),
        ({"at_least": 1, "at_most": 2}, 3.0, Status.BROKEN),
    ],
)
def test_k_is_held_against_both_bounds(bounds: dict[str, float], k: float, status: Status) -> None:
    assert judge(ExpectedMemorySlope.model_validate(bounds), slope(scraped(*grown(k))))[0] is status


def test_peaks_on_no_line_are_unknown() -> None:
    crooked = slope(scraped(BASE + 1e6, BASE + 900e6, BASE + 901e6, BASE + 902e6))
    status, why = judge(ExpectedMemorySlope(at_most=1), crooked)
    assert status is Status.UNKNOWN
    assert "on no line" in why


def test_a_jump_without_a_line_is_unknown() -> None:
    jumped = slope(scraped(BASE, BASE, BASE, BASE + 900e6))
    for expected in (ExpectedMemorySlope(at_most=1), ExpectedMemorySlope(at_least=1)):
        status, why = judge(expected, jumped)
        assert status is Status.UNKNOWN
        assert "1 stages" in why


def test_several_servers_count_together() -> None:
    halves = [(at.timestamp() - START.timestamp(), v / 2) for at, v in scraped(*grown(2.0))[["time", "value"]].values]
    both = slope(pd.concat([frame(halves, "a"), frame(halves, "b")]))
    assert both.k == pytest.approx(2.0)


def test_a_server_that_starts_anew_a_gap_or_too_few_stages_give_no_slope() -> None:
    rows = scraped(*grown(3.0))
    anew = frame([(30, START.timestamp() + 25)], metric=STARTED)
    assert memory_slope(pd.concat([rows, anew]), staged()) is None
    assert memory_slope(rows[rows.time < pd.Timestamp(START + timedelta(seconds=60))], staged()) is None
    assert memory_slope(rows[rows.time >= pd.Timestamp(START)], staged()) is None
    assert memory_slope(rows, staged((1, 2))) is None
    assert memory_slope(empty("api_server"), staged()) is None


def test_the_verdict_names_k_the_form_and_the_servers_version() -> None:
    expected = ExpectedContainment(memory_slope=ExpectedMemorySlope(at_least=1))
    plan = PLAN.model_copy(update={"expect": PLAN.expect.model_copy(update={"containment": expected})})
    run = passing()
    (verdict,) = check(plan, history_of([*run, Timed(60, staged())]), Frames(api_server=scraped(*grown(3.0))))
    assert verdict.status is Status.HELD
    assert "k = 3.00" in verdict.measured
    assert "table, server v" in verdict.measured
    (verdict,) = check(plan, history_of(run), Frames(api_server=scraped(*grown(3.0))))
    assert verdict.status is Status.UNKNOWN
    assert "0 whole stages" in verdict.why


@pytest.mark.parametrize("bounds", [{}, {"at_least": 2, "at_most": 1}, {"at_least": 0}, {"at_most": 1, "fit": 2}])
def test_bounds_that_say_nothing_are_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        ExpectedMemorySlope.model_validate(bounds)
