"""The draw of a random season: one seed draws it once, only allowed plans, nothing past the budget."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gameday.documents.fields import parse_duration
from gameday.errors import RefusedError
from gameday.runs.assignment import FitNode, RunQueue
from gameday.runs.draw import draw, draw_times, plans_to_draw, random_season_command, refuse_settings, usual_duration
from gameday.runs.plans import ChosenPlan
from gameday.runs.season_record import Assignment, DrawnNotPlaced, RandomSettings
from tests.guard.observations import profile
from tests.runs.season_builders import chosen, nodes

HOUR = RandomSettings(budget=timedelta(hours=1), mean_gap=timedelta(minutes=2))
PLANS = [chosen(name) for name in ("a", "b", "c", "d")]
TAKES = dict.fromkeys((*"abcd", "new", "wide"), timedelta(minutes=30))
NOTHING: dict[str, timedelta] = {}


def drawn(
    seed: int = 7, plans: list[ChosenPlan] = PLANS, fit: list[FitNode] | None = None
) -> tuple[list[Assignment], list[DrawnNotPlaced]]:
    return draw("s", plans, nodes(8) if fit is None else fit, HOUR, seed, TAKES)


@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_one_seed_draws_one_season_however_plans_and_nodes_are_listed(seed: int, order: object) -> None:
    plans, listed = PLANS.copy(), nodes(8)
    order.shuffle(plans)  # type: ignore[attr-defined]
    order.shuffle(listed)  # type: ignore[attr-defined]
    assert drawn(seed, plans, listed) == drawn(seed)


def test_another_seed_draws_other_times_plans_nodes_and_gpus() -> None:
    one, two = drawn(7)[0], drawn(8)[0]
    assert {run.drawn.at_s for run in one if run.drawn}.isdisjoint(run.drawn.at_s for run in two if run.drawn)
    assert [run.plan for run in one] != [run.plan for run in two]
    assert [run.targets for run in one] != [run.targets for run in two]
    assert {run.drawn.seed for run in one if run.drawn}.isdisjoint(run.drawn.seed for run in two if run.drawn)


def test_a_node_that_is_gone_changes_only_the_game_days_that_it_had() -> None:
    before, gone = drawn()[0], "node-3"
    after = drawn(fit=[node for node in nodes(8) if node.name != gone])[0]
    assert any(gone in run.targets for run in before)
    assert [run for run in before if gone not in run.targets] == [
        now for was, now in zip(before, after, strict=True) if gone not in was.targets
    ]


def test_a_new_plan_changes_only_the_game_days_that_it_gets() -> None:
    before, after = drawn()[0], drawn(plans=[*PLANS, chosen("new")])[0]
    kept = [(was, now) for was, now in zip(before, after, strict=True) if now.plan != "new"]
    assert 0 < len(kept) < len(before)
    assert all(was == now for was, now in kept)


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_no_game_day_may_still_be_under_way_when_the_budget_is_over(seed: int) -> None:
    runs, not_placed = drawn(seed)
    for run in runs:
        assert run.drawn is not None
        assert run.drawn.at_s <= run.drawn.latest_s == 1800
    assert all(one.at_s > 1800 and "would pass the end of the budget" in one.why for one in not_placed)
    assert len(runs) + len(not_placed) == len(draw_times(HOUR, seed))


def test_gaps_are_exponential_with_the_mean_that_was_asked_for() -> None:
    long = RandomSettings(budget=timedelta(hours=500), mean_gap=timedelta(hours=1))
    gaps = [after - before for seed in range(20) for before, after in pairwise(draw_times(long, seed))]
    assert fmean(gaps) == pytest.approx(3600, rel=0.05)
    assert sum(gap > 3600 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.02)  # 1/e, of an exponential one


def test_every_plan_and_node_is_drawn_about_as_often() -> None:
    many = RandomSettings(budget=timedelta(hours=100), mean_gap=timedelta(minutes=6))
    runs, _ = draw("s", PLANS, nodes(4), many, 1, TAKES)
    for values in ([run.plan for run in runs], [run.targets[0] for run in runs]):
        shares = [values.count(value) / len(values) for value in set(values)]
        assert len(shares) == 4
        assert all(share == pytest.approx(0.25, abs=0.06) for share in shares)


def test_a_plan_without_enough_fit_nodes_is_drawn_and_said() -> None:
    runs, not_placed = drawn(plans=[chosen("wide", nodes=3)], fit=nodes(2))
    assert runs == []
    assert not_placed[0].why == "it needs 3 nodes, and 2 that it may use are fit"


def test_a_plan_that_judges_running_pods_is_drawn_on_busy_nodes() -> None:
    fit = [*nodes(3, busy=False), FitNode("busy", {}, busy=True)]
    runs, _ = drawn(plans=[chosen("a", running_pods="kept")], fit=fit)
    assert {run.targets for run in runs} == {("busy",)}


def test_a_dangerous_plan_is_drawn_only_where_the_cluster_allows_its_fault_even_if_named() -> None:
    for names in ([], ["node-reboot", "power-cap"]):
        never, left_out = plans_to_draw(names, cluster=profile(), at_once=4, budget=timedelta(hours=1), before=NOTHING)
        assert not [one.name for one in never if one.plan.dangers()]
        assert "allow_dangerous" in next(one.why for one in left_out if one.plan == "node-reboot")
    allowing = profile().model_copy(update={"allow_dangerous": ("node_reboot",)})
    some, _ = plans_to_draw([], cluster=allowing, at_once=4, budget=timedelta(hours=1), before=NOTHING)
    assert {fault for one in some for fault in one.plan.dangers()} == {"node_reboot"}


def test_arms_and_repairs_by_the_cluster_are_never_drawn_unnamed() -> None:
    some, left_out = plans_to_draw([], cluster=profile(), at_once=4, budget=timedelta(hours=1), before=NOTHING)
    assert not [one.name for one in some if one.plan.arms or one.plan.recover.is_hands_off]
    assert {"compare-remediations", "hands-off-double-bit-ecc"} <= {one.plan for one in left_out}


def test_a_budget_shorter_than_every_plan_is_refused_with_the_smallest_one() -> None:
    virtual = profile().model_copy(update={"rehearsal": Path("virtual")})
    names = ["power-cap", "gpu-fell-off-the-bus", "node-reboot"]
    with pytest.raises(RefusedError, match=r"none can be drawn: the shortest, gpu-fell-off-the-bus, takes") as refused:
        plans_to_draw(names, cluster=virtual, at_once=4, budget=timedelta(seconds=50), before=NOTHING)
    assert refused.value.hint == "--budget 60s or longer"
    some, _ = plans_to_draw(names, cluster=virtual, at_once=4, budget=timedelta(seconds=60), before=NOTHING)
    assert [one.name for one in some] == ["gpu-fell-off-the-bus"]


def test_no_budget_is_named_where_none_would_help() -> None:
    with pytest.raises(RefusedError, match="compares arms") as refused:
        plans_to_draw(["compare-remediations"], cluster=profile(), at_once=4, budget=timedelta(hours=1), before=NOTHING)
    assert refused.value.hint == "name other plans"


def test_a_season_books_what_game_days_took_here_and_never_more_than_they_may() -> None:
    one, virtual = chosen("a"), profile().model_copy(update={"rehearsal": Path("virtual")})
    assert usual_duration(one, virtual, {"a": timedelta(seconds=44)}) == timedelta(seconds=44)
    assert usual_duration(one, virtual, {"b": timedelta(seconds=44)}) == one.longest_wait + timedelta(seconds=30)
    real = usual_duration(one, profile(), NOTHING)
    assert real == one.longest_wait + timedelta(minutes=10, seconds=30), "a real node is repaired in minutes"
    assert usual_duration(one, virtual, {"a": timedelta(hours=9)}) == one.plan.guardrails.max_duration


def test_the_example_of_the_readme_draws_its_main_plan() -> None:
    budget = re.search(r"season --random --budget (\w+) --rehearse", Path("README.md").read_text())
    assert budget
    asked = parse_duration(budget[1])
    virtual = profile().model_copy(update={"rehearsal": Path("virtual")})
    some, _ = plans_to_draw([], cluster=virtual, at_once=4, budget=asked, before=NOTHING)
    assert "gpu-fell-off-the-bus" in {one.name for one in some}


@pytest.mark.parametrize("gap", [timedelta(), timedelta(seconds=1)])
def test_a_mean_gap_that_draws_thousands_is_refused_with_one_that_does_not(gap: timedelta) -> None:
    with pytest.raises(RefusedError) as refused:
        refuse_settings(RandomSettings(budget=timedelta(hours=1), mean_gap=gap))
    assert refused.value.hint == "--mean-gap 4s or longer"
    refuse_settings(RandomSettings(budget=timedelta(hours=1), mean_gap=timedelta(seconds=4)))


def test_the_command_says_all_that_draws_the_season() -> None:
    said = random_season_command(["my plan.yaml"], 7, 2, HOUR, "--profile", "c.yaml")
    assert said == (
        "gameday season --random 'my plan.yaml' --seed 7 --at-once 2 --budget 3600s --mean-gap 120s --profile c.yaml"
    )


def at(number: int, seconds: float, latest: float, *targets: str) -> Assignment:
    time = {"at_s": seconds, "latest_s": latest, "seed": number}
    return Assignment.model_validate(
        {"run_id": f"s-{number}", "plan": f"plan-{number}", "asked_as": "x", "targets": targets, "drawn": time}
    )


def test_a_run_begins_at_its_time_and_one_whose_node_stays_taken_is_late() -> None:
    queue = RunQueue([at(1, 10, 100, "a"), at(2, 20, 30, "a"), at(3, 40, 100, "b")], at_once=9)
    assert queue.startable(9) == []
    assert [one.run_id for one in queue.startable(10)] == ["s-1"]
    assert queue.startable(30) == []
    assert queue.late == []
    assert queue.startable(31) == []
    assert queue.late == ["s-2"]
    queue.ended("s-1")
    assert queue.waits_for_a_time
    assert [one.run_id for one in queue.startable(41)] == ["s-3"]
    assert not queue.waits_for_a_time


def test_later_runs_do_not_keep_one_waiting_that_runs_alone() -> None:
    queue = RunQueue([at(1, 0, 99, "a"), at(2, 1, 99, "b"), at(3, 2, 99, "c")], 9, frozenset({"plan-2"}))
    assert [one.run_id for one in queue.startable(5)] == ["s-1"]
    queue.ended("s-1")
    assert [one.run_id for one in queue.startable(5)] == ["s-2"]
    queue.ended("s-2")
    assert [one.run_id for one in queue.startable(5)] == ["s-3"]
