"""The arithmetic of a detector's score, on made-up plays."""

from __future__ import annotations

from statistics import quantiles

import pytest

from gameday.runs.scores import Estimate, Play, score


def act(case: str = "a", seconds: float | None = 1.0, *, acted: bool = True, cleared: bool | None = None) -> Play:
    return Play(case, must_act=True, acted=acted, seconds=seconds, cleared=cleared)


def leave(case: str = "z", *, acted: bool = False) -> Play:
    return Play(case, must_act=False, acted=acted, seconds=0.5 if acted else None, cleared=None)


def figure(found: Estimate) -> tuple[float | None, int]:
    return (None if found.value is None else round(found.value, 6), found.of)


def test_recall_and_wrong_actions_are_means_over_cases_not_over_plays() -> None:
    # A case that was played ten times weighs as much as one that was played once.
    plays = [*[act("a") for _ in range(10)], act("b", None, acted=False)]
    plays += [*[leave("y") for _ in range(3)], leave("y", acted=True), leave("z")]
    found = score(plays, 1)
    assert figure(found.recall) == (0.5, 11)
    assert figure(found.wrong) == (0.125, 5)


@pytest.mark.parametrize(("costs", "points"), [(0, 0.75), (1, 0.25), (2, -0.25)])
def test_points_are_recall_less_what_wrong_actions_cost(costs: float, points: float) -> None:
    plays = [act(), act(), act(), act(acted=False), leave(), leave(acted=True)]
    assert figure(score(plays, costs).points) == (points, 6)


def test_acting_always_and_acting_never_are_worth_nothing_at_equal_costs() -> None:
    always = score([act(), leave(acted=True)], 1)
    never = score([act(acted=False, seconds=None), leave()], 1)
    assert (always.points.value, never.points.value) == (0, 0)


def test_without_one_kind_of_case_there_are_no_points() -> None:
    assert score([act()], 1).points == score([leave()], 1).points == score([], 1).recall == Estimate()


def test_latencies_are_of_plays_in_which_somebody_must_act() -> None:
    seconds = [float(n) for n in range(1, 22)]
    found = score([*[act(seconds=one) for one in seconds], act(seconds=None, acted=False), leave(acted=True)], 1)
    assert figure(found.p50) == (11.0, 21)
    assert found.p95.value == pytest.approx(quantiles(seconds, n=20, method="inclusive")[-1])
    assert figure(found.worst) == (21.0, 21)
    assert found.p50.low is not None and found.p50.high is not None
    assert 5 < found.p50.low < 11 < found.p50.high < 17
    assert found.worst.high == 21


def test_clearing_is_of_plays_in_which_it_rightly_acted_and_somebody_repaired() -> None:
    plays = [act(cleared=True), act(cleared=False), act(cleared=None), act(acted=False, cleared=None)]
    assert figure(score(plays, 1).cleared) == (0.5, 2)


def test_an_interval_is_wider_by_what_differs_between_cases_and_the_same_each_time() -> None:
    alike = [act(f"{n}", acted=m < 10) for n in range(10) for m in range(20)]
    apart = [act(f"{n}", acted=n < 5) for n in range(10) for m in range(20)]
    one, other = score(alike, 1).recall, score(apart, 1).recall
    assert one.value == other.value == 0.5
    assert None not in (one.low, one.high, other.low, other.high)
    assert (one.high or 0) - (one.low or 0) < 0.2 < 0.4 < (other.high or 0) - (other.low or 0)
    assert score(apart, 1) == score(apart, 1)


def test_plays_that_all_agree_leave_no_interval() -> None:
    found = score([act() for _ in range(20)], 1).recall
    assert (found.low, found.value, found.high) == (1, 1, 1)
