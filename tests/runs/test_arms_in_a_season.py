"""A plan with arms in a season: one choice of nodes, one run for each arm and repetition, one comparison."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gameday.cluster.profile import ClusterProfile
from gameday.detectors.resolve import load_complete_plan
from gameday.errors import DocumentError, RefusedError
from gameday.history.events import AlertSeen
from gameday.plan.catalogue import package_plans
from gameday.runs.assignment import RunQueue, assign
from gameday.runs.comparison_record import comparisons
from gameday.runs.plans import (
    ChosenPlan,
    choose_plans,
    longest_wait,
    plan_with_arms,
    plans_that_run_alone,
    played_here,
)
from gameday.runs.season_page import render_season
from gameday.runs.season_record import LeftOut, SeasonRecord, refuse_left_out
from tests.report.run_builder import START, passing, without, write
from tests.runs.season_builders import chosen, nodes

ARMS = {
    "repetitions": 2,
    "compare": [{"name": "a"}, {"name": "b", "may_break": ["alert-fires", "alert-resolves"]}],
}


def armed(name: str = "two", **changes: object) -> ChosenPlan:
    return chosen(name, arms=ARMS | changes)


def season(*plans: ChosenPlan) -> SeasonRecord:
    places, _ = assign("season-1", plans, nodes(3))
    return SeasonRecord(
        id="season-1",
        cluster="lab",
        trigger="manual",
        command="gameday coverage",
        seed=7,
        at_once=4,
        started=START,
        places=tuple(places),
        left_out=(),
    )


def test_all_arms_have_the_same_nodes_and_turn_round() -> None:
    runs = season(armed()).places
    assert len({run.targets for run in runs}) == 1
    assert [(run.arm.arm, run.arm.repetition) for run in runs if run.arm] == [("a", 1), ("b", 1), ("b", 2), ("a", 2)]
    assert {str(run.reports(Path("r"))) for run in runs} == {"r/season-1-two"}


def test_arms_are_played_one_after_the_other_in_their_order() -> None:
    queue, order = RunQueue(season(armed(), chosen("other")).places, at_once=4), []
    waiting = queue.startable()
    while waiting:
        one = waiting.pop(0)
        order.append(one.run_id)
        queue.ended(one.run_id)
        waiting += queue.startable()
    of_arms = [run.run_id for run in season(armed(), chosen("other")).places if run.arm]
    assert [run_id for run_id in order if run_id in of_arms] == of_arms


def test_a_season_keeps_a_record_for_each_comparison() -> None:
    (record,) = comparisons(season(armed(), chosen("other")), [armed(), chosen("other")])
    assert (record.id, record.repetitions, len(record.runs)) == ("season-1-two", 2, 4)
    assert record.arms[1].may_break == ("alert-fires", "alert-resolves")


def test_a_comparison_waits_as_long_as_all_its_game_days() -> None:
    assert armed().longest_wait == 4 * longest_wait(chosen("one").plan)


def test_a_seasons_page_links_the_arms_runs_and_counts_them_as_their_arms_do(tmp_path: Path) -> None:
    plan = armed(repetitions=1)
    record = season(plan)
    record.save(tmp_path / "season-1")
    (compared,) = comparisons(record, [plan])
    compared.save(tmp_path / compared.id)
    first, second = (tmp_path / compared.id / run.run_id for run in record.places)
    write(first, passing())
    write(second, without(passing(), lambda event: isinstance(event, AlertSeen)))
    rendered = render_season(tmp_path / "season-1", START)
    assert rendered.content.result.exit_code == 0
    assert f'"../{compared.id}/comparison.html"' in rendered.html.read_text(encoding="utf-8")


def plan_file(folder: Path, arms: dict[str, object]) -> str:
    plan = json.loads(armed(**arms).loaded.source)
    (folder / "two.yaml").write_text(json.dumps(plan, indent=1), encoding="utf-8")
    return str(folder / "two.yaml")


def with_arms(path: str) -> ChosenPlan:
    return plan_with_arms(path, load_complete_plan(Path(path)), ClusterProfile.model_construct())


def test_a_check_that_judges_no_run_of_the_arm_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    wrong = [{"name": "a"}, {"name": "b", "must_break": ["alert-fire"]}]
    name = plan_file(tmp_path, {"compare": wrong})
    for read in (lambda: with_arms(name), lambda: choose_plans([name], within=None, at_once=1)):
        with pytest.raises(DocumentError, match="did you mean `alert-fires`") as caught:
            read()
        (problem,) = caught.value.problems
        assert problem.where == "arms.compare[1].must_break[0]"
        assert problem.line is not None


def test_a_plan_without_arms_is_no_comparison(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_bytes(chosen("one").loaded.source)
    with pytest.raises(DocumentError, match="no arms to compare"):
        with_arms(str(tmp_path / "one.yaml"))


def test_a_comparison_is_refused_whole() -> None:
    with pytest.raises(RefusedError, match="no node"):
        refuse_left_out([LeftOut(plan="two", title="Two", why="no node is fit")])
    refuse_left_out([])


def test_a_season_of_all_plans_leaves_comparisons_out() -> None:
    _, left_out = choose_plans([], within=None, at_once=4)
    assert "where its plan is named" in next(one.why for one in left_out if one.plan == "compare-remediations")


def test_the_example_of_the_page_is_a_good_plan(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    example, *_ = re.findall(r"```yaml\n(.*?)```", (root / "docs" / "arms.md").read_text(encoding="utf-8"), re.DOTALL)
    plan = (root / "plans" / "xid-95-uncontained-ecc.yaml").read_text(encoding="utf-8")
    (tmp_path / "p.yaml").write_text(plan + example, encoding="utf-8")
    assert [one.arm.name for one in with_arms(str(tmp_path / "p.yaml")).loaded.arms if one.arm] == [
        "ours",
        "nvsentinel",
        "nobody",
    ]


def test_a_fault_that_stops_the_control_plane_is_played_in_a_lab_only_and_alone() -> None:
    path = package_plans()["etcd-slow"]
    one = ChosenPlan("etcd-slow", load_complete_plan(path).of_arm("grace-50s"))
    assert not one.plan.arms
    assert [left.title for left in played_here([one], None)[1]] == [one.plan.title]
    assert played_here([one], Path("control.sock")) == ([one], [])
    assert plans_that_run_alone([one]) == {one.plan.name}


def test_arms_that_change_the_control_plane_are_played_in_a_lab_only_and_alone() -> None:
    environment = {"environment": {"kube-apiserver": {"GOGC": "50"}}}
    compare = [{"name": "a"}, {"name": "b", "set": {"rehearsal": environment}}]
    one = chosen("two", arms={"compare": compare}, rehearsal={"cluster": "lab"})
    assert (one.begins_fresh, one.rehearsal_of("b"), one.rehearsal_of("a")) == (True, environment, {})
    here, left_out = played_here([one, armed("equal")], None)
    assert [plan.name for plan in here] == ["equal"]
    assert "gameday rehearse two" in left_out[0].why
    assert played_here([one], Path("control.sock")) == ([one], [])
    assert plans_that_run_alone([one, armed("equal")]) == {"two"}
    assert not armed("equal").begins_fresh
