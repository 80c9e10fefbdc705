"""Who breaks which node, and when a run may begin."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gameday.cluster.profile import GuestAddress
from gameday.plan.limits import Approval
from gameday.runs.assignment import FitNode, RunQueue, assign, seeded_order
from gameday.runs.plans import choose_plans, longest_wait, plans_that_run_alone
from gameday.runs.season_record import Assignment
from tests.guard.observations import profile
from tests.runs.season_builders import chosen, nodes


def test_one_seed_orders_the_same_nodes_alike_however_they_were_listed() -> None:
    names = [f"node-{number}" for number in range(50)]
    assert seeded_order(names, 7) == seeded_order(names[::-1], 7)
    assert seeded_order(names, 7) != seeded_order(names, 8)


def test_every_plan_has_nodes_of_its_own_where_there_are_enough() -> None:
    places, left_out = assign("season-1", [chosen("a"), chosen("b", nodes=2), chosen("c")], nodes(4))
    targets = [node for one in places for node in one.targets]
    assert sorted(targets) == ["node-1", "node-2", "node-3", "node-4"]
    assert left_out == []
    assert [one.run_id for one in places] == ["season-1-01", "season-1-02", "season-1-03"]


def test_two_seasons_of_one_seed_choose_the_same_targets() -> None:
    plans = [chosen("a"), chosen("b", nodes=2), chosen("c")]
    listed = nodes(9)

    def choice(listed: list[FitNode]) -> list[tuple[str, ...]]:
        by_name = {node.name: node for node in listed}
        order = [by_name[name] for name in seeded_order(list(by_name), 42)]
        return [one.targets for one in assign("any", plans, order)[0]]

    assert choice(listed) == choice(listed[::-1])


def test_nodes_are_shared_out_evenly_where_plans_outnumber_them() -> None:
    places, _ = assign("s", [chosen(f"p{number}") for number in range(6)], nodes(3))
    used = [one.targets[0] for one in places]
    assert {used.count(name) for name in set(used)} == {2}


def test_a_plan_that_judges_running_pods_takes_a_busy_node_first() -> None:
    idle, busy = FitNode("idle", {}, busy=False), FitNode("busy", {}, busy=True)
    places, _ = assign("s", [chosen("a", running_pods="kept")], [idle, busy])
    assert places[0].targets == ("busy",)


def test_a_plans_own_selector_and_names_hold_in_a_season() -> None:
    labelled = FitNode("special", {"rack": "b"}, busy=True)
    plans = [chosen("a", selector={"rack": "b"}), chosen("b", names=["node-2"])]
    places, _ = assign("s", plans, [*nodes(3), labelled])
    assert [one.targets for one in places] == [("special",), ("node-2",)]


def test_a_plan_for_which_no_fit_node_is_left_is_said_to_be_left_out() -> None:
    places, left_out = assign("s", [chosen("a", nodes=3)], nodes(2))
    assert places == []
    assert [(one.plan, one.why) for one in left_out] == [("a", "it needs 3 nodes, and 2 that it may use are fit")]


def test_what_may_wait_longest_begins_first() -> None:
    names = ["xid-13-application-error", "power-cap"]
    plans, _ = choose_plans(names, within=None, at_once=4)
    assert [one.plan.name for one in plans] == ["power-cap", "xid-13-application-error"]


def test_dangerous_plans_are_left_out_unless_they_are_named() -> None:
    plans, left_out = choose_plans([], within=None, at_once=4)
    assert "node-reboot" not in {one.plan.name for one in plans}
    assert "dangerous" in next(one.why for one in left_out if one.plan == "node-reboot")
    named, _ = choose_plans(["node-reboot"], within=None, at_once=4)
    assert [one.plan.name for one in named] == ["node-reboot"]


def test_a_rehearsed_season_plays_dangerous_plans_unnamed() -> None:
    plans, left_out = choose_plans([], within=None, at_once=4, rehearsed=True)
    assert {"node-reboot", "log-store-frozen", "node-shutdown"} <= {one.plan.name for one in plans}
    assert not [one for one in left_out if "dangerous" in one.why]
    hands_off = {one.plan: one.why for one in left_out if one.plan.startswith("hands-off")}
    assert hands_off
    assert all(why.startswith("the cluster repairs the node") for why in hands_off.values())


def test_a_plan_that_may_wait_too_long_is_left_out_with_its_reason() -> None:
    plans, left_out = choose_plans(["clock-lock"], within=timedelta(minutes=2), at_once=4)
    assert plans == []
    assert left_out[0].why == "it may wait 246s for its signals, longer than 120s"


def test_a_slow_guests_profile_leaves_no_plan_out_for_its_wait() -> None:
    update = {"guest": GuestAddress(name="npd", url="http://127.0.0.1:1/guests"), "detector": "aks-gpu-health"}
    cluster, two = profile().model_copy(update=update), timedelta(minutes=2)
    names = ["gpu-fell-off-the-bus", "xid-48-double-bit-ecc", "clock-lock"]
    plans, left_out = choose_plans(names, within=two, at_once=4, cluster=cluster)
    assert {one.plan.name: longest_wait(one.plan) > two for one in plans} == dict.fromkeys(names[:2], True)
    assert [one.plan for one in left_out] == ["clock-lock"]


def test_a_plan_that_breaks_more_nodes_than_may_be_is_left_out(tmp_path: Path) -> None:
    wide = tmp_path / "wide.yaml"
    wide.write_bytes(chosen("wide", nodes=3).loaded.source)
    plans, left_out = choose_plans([str(wide)], within=None, at_once=2)
    assert plans == []
    assert left_out[0].why == "it aims at 3 nodes, and at most 2 may be broken at once"


def test_a_plan_that_breaks_a_whole_domain_is_left_out_of_every_season() -> None:
    plans, left_out = choose_plans(["rack-loses-power"], within=None, at_once=9)
    assert plans == []
    assert "`gameday run rack-loses-power`" in left_out[0].why


def test_a_fault_that_other_nodes_feel_is_known_to_reach_beyond_its_own() -> None:
    plans, _ = choose_plans(["log-store-frozen", "power-cap"], within=None, at_once=4)
    assert plans_that_run_alone(plans) == {"log-store-frozen"}


def run_of(number: int, *targets: str) -> Assignment:
    return Assignment(run_id=f"s-{number}", plan=f"plan-{number}", asked_as="x", targets=targets)


def test_no_more_nodes_are_broken_at_once_than_may_be() -> None:
    waiting = RunQueue([run_of(1, "a", "b"), run_of(2, "c", "d"), run_of(3, "e")], at_once=3)
    assert [one.run_id for one in waiting.startable()] == ["s-1", "s-3"]
    assert waiting.startable() == []
    waiting.ended("s-1")
    assert [one.run_id for one in waiting.startable()] == ["s-2"]
    assert not waiting


def test_a_node_is_broken_by_one_run_at_a_time() -> None:
    waiting = RunQueue([run_of(1, "a"), run_of(2, "a")], at_once=9)
    assert [one.run_id for one in waiting.startable()] == ["s-1"]
    waiting.ended("s-1")
    assert [one.run_id for one in waiting.startable()] == ["s-2"]


def test_what_reaches_beyond_its_node_runs_alone_and_last() -> None:
    waiting = RunQueue([run_of(1, "a"), run_of(2, "b"), run_of(3, "c")], 9, frozenset({"plan-1"}))
    assert [one.run_id for one in waiting.startable()] == ["s-2", "s-3"]
    waiting.ended("s-2")
    assert waiting.startable() == []
    waiting.ended("s-3")
    assert [one.run_id for one in waiting.startable()] == ["s-1"]


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    count=st.integers(3, 8),
    at_once=st.integers(3, 6),
    picks=st.randoms(use_true_random=False),
)
def test_every_run_begins_once_within_the_limit_in_whatever_order_runs_end(
    sizes: list[int], count: int, at_once: int, picks: object
) -> None:
    places, _ = assign("s", [chosen(f"p{n}", nodes=size) for n, size in enumerate(sizes)], nodes(count))
    waiting, begun = RunQueue(places, at_once), []
    running: dict[str, Assignment] = {}
    while waiting or running:
        for one in waiting.startable():
            running[one.run_id] = one
            begun.append(one.run_id)
        broken = [node for one in running.values() for node in one.targets]
        assert len(broken) == len(set(broken)) <= at_once
        assert running
        ended = picks.choice(sorted(running))  # type: ignore[attr-defined]
        del running[ended]
        waiting.ended(ended)
    assert sorted(begun) == sorted(one.run_id for one in places)


def test_the_wait_for_a_persons_yes_is_no_wait_for_a_signal() -> None:
    plain = chosen("a")
    asking = plain.plan.model_copy(update={"approval": Approval(required=True, within=timedelta(hours=2))})
    assert longest_wait(asking) == longest_wait(plain.plan)


def test_where_a_guest_watches_plans_expect_what_its_profile_says() -> None:
    cluster = profile().model_copy(
        update={"guest": GuestAddress(name="npd", url="http://127.0.0.1:1/guests"), "detector": "node-problem-detector"}
    )
    names = ["gpu-fell-off-the-bus", "hands-off-double-bit-ecc"]
    plans, left_out = choose_plans(names, within=None, at_once=4, cluster=cluster)
    assert [(one.name, one.plan.detector) for one in plans] == [("gpu-fell-off-the-bus", "node-problem-detector")]
    assert [one.plan for one in left_out] == ["hands-off-double-bit-ecc"]
    unwritten = cluster.model_copy(update={"detector": "gameday"})
    (one,), _ = choose_plans(names[:1], within=None, at_once=4, cluster=unwritten)
    assert (one.plan.detector, one.loaded.from_detector) == ("npd", None)
