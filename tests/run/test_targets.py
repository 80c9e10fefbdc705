"""Who may be a target: the same seed chooses the same nodes, and every refusal says what each lacked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gameday.history.events import TargetsChosen
from gameday.run.context import Run
from gameday.run.stop import RefusedError
from gameday.run.targets import choose_targets
from tests.kubernetes.world import World, unique

NewRun = Callable[..., Run]
FAULTY = {"key": "trainy.konduktor.ai/faulty", "value": "mine", "effect": "NoSchedule"}
ODD = {"key": "example.com/maintenance", "value": "", "effect": "NoSchedule"}
USUAL = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.fixture
def group() -> dict[str, str]:
    return {"test.example/group": unique("g")}


def refused(run: Run) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        choose_targets(run)
    assert run.journal.history().of(TargetsChosen) == []
    return caught.value


def test_a_seed_chooses_the_same_targets_in_the_same_order(
    world: World, new_run: NewRun, group: dict[str, str]
) -> None:
    names = {world.add_node(labels=group) for _ in range(6)}
    chosen = [choose_targets(new_run(nodes=1, selector=group, seed=seed)).targets for seed in [*range(12), *range(12)]]
    assert chosen[:12] == chosen[12:]
    assert {target.node for targets in chosen for target in targets} <= names
    assert len({targets[0].node for targets in chosen}) > 2, "a seed that changes nothing is no seed"
    assert len({targets[0].gpu for targets in chosen}) > 2


def test_the_choice_is_noted_with_its_rule(world: World, new_run: NewRun, group: dict[str, str]) -> None:
    for _ in range(3):
        world.add_node(labels=group)
    run = new_run(selector=group, seed=7)
    chosen = choose_targets(run)
    (noted,) = run.journal.history().of(TargetsChosen)
    assert (noted.targets, noted.candidates, noted.seed) == (chosen.targets, 3, 7)
    assert "gameday.dev/opt-in=true" in noted.rule
    assert f"test.example/group={group['test.example/group']}" in noted.rule
    assert [seen.node for seen in chosen.snapshots] == [target.node for target in chosen.targets]


def test_an_unfit_node_is_passed_over_and_the_order_kept(world: World, new_run: NewRun, group: dict[str, str]) -> None:
    for _ in range(4):
        world.add_node(labels=group)
    first = choose_targets(new_run(selector=group, seed=3)).targets[0].node
    world.taint(first, ODD)
    second = choose_targets(new_run(selector=group, seed=3)).targets[0].node
    assert second != first
    world.taint(first)
    assert choose_targets(new_run(selector=group, seed=3)).targets[0].node == first


def test_the_operators_own_gpu_taint_is_ordinary(world: World, new_run: NewRun, group: dict[str, str]) -> None:
    node = world.add_node(labels=group, taints=[USUAL])
    assert choose_targets(new_run(selector=group)).targets[0].node == node


def test_choosing_costs_one_list_and_one_look(world: World, new_run: NewRun, group: dict[str, str]) -> None:
    for _ in range(4):
        world.add_node(labels=group)
    run = new_run(selector=group)
    choose_targets(run)
    assert run.kubernetes.counter.cost().by_call == {"LIST nodes": 1, "GET nodes": 1}


def test_named_nodes_are_taken_in_the_plans_order(world: World, new_run: NewRun) -> None:
    names = sorted((world.add_node(), world.add_node()), reverse=True)
    run = new_run(nodes=1, names=names)
    assert [target.node for target in choose_targets(run).targets] == names[:1]
    (noted,) = run.journal.history().of(TargetsChosen)
    assert (noted.candidates, noted.rule.startswith("the nodes the plan names")) == (2, True)


def test_a_named_node_must_have_opted_in_too(world: World, new_run: NewRun) -> None:
    node = world.add_node(labels={"gameday.dev/opt-in": "false"})
    error = refused(new_run(names=[node]))
    assert f"{node}: lacks label gameday.dev/opt-in=true" in error.why


def test_a_named_node_that_is_not_there(new_run: NewRun) -> None:
    error = refused(new_run(names=["no-such-node"]))
    assert error.why.startswith("0 of 1 targets found; no-such-node: no node of this name in https://")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"ready": "False"}, "Ready is False"),
        ({"ready": "Unknown"}, "Ready is Unknown"),
        ({"unschedulable": True}, "is cordoned"),
        ({"taints": [FAULTY]}, "already carries trainy.konduktor.ai/faulty=mine:NoSchedule, which is"),
        ({"taints": [USUAL, ODD]}, "carries example.com/maintenance:NoSchedule"),
    ],
    ids=["not-ready", "unknown", "cordoned", "faulty", "odd-taint"],
)
def test_an_unfit_node_says_why(
    world: World, new_run: NewRun, group: dict[str, str], how: dict[str, object], why: str
) -> None:
    node = world.add_node(labels=group, **how)  # type: ignore[arg-type]
    error = refused(new_run(selector=group))
    assert error.why.startswith(f"0 of 1 targets found; {node}: {why}")
    assert error.hint == "mend the nodes, or change targets in the plan"


def test_too_few_fit_nodes_say_how_many(world: World, new_run: NewRun, group: dict[str, str]) -> None:
    world.add_node(labels=group)
    cordoned = world.add_node(labels=group, unschedulable=True)
    run = new_run(nodes=1, selector=group)
    targets = run.plan.targets.model_copy(update={"nodes": 2})
    run.loaded = type(run.loaded)(run.plan.model_copy(update={"targets": targets}), b"", "")
    assert refused(run).why == f"1 of 2 targets found; {cordoned}: is cordoned"


def test_nobody_opted_in(new_run: NewRun) -> None:
    error = refused(new_run(selector={"test.example/group": "nobody"}))
    assert error.why == "no node carries gameday.dev/opt-in=true,test.example/group=nobody"
    assert error.hint == "kubectl label node <node> gameday.dev/opt-in=true lets game-days touch it"


def test_a_cluster_of_unfit_nodes_is_not_searched_through(world: World, new_run: NewRun, group: dict[str, str]) -> None:
    for _ in range(9):
        world.add_node(labels=group, unschedulable=True)
    run = new_run(selector=group)
    assert refused(run).why.count("is cordoned") == 5
    assert run.kubernetes.counter.cost().by_call["GET nodes"] <= 6


def test_a_gpu_the_plan_names_is_kept(world: World, new_run: NewRun, group: dict[str, str]) -> None:
    world.add_node(labels=group)
    run = new_run(selector=group)
    fault = run.plan.fault.model_copy(update={"gpu": 5})
    run.loaded = type(run.loaded)(run.plan.model_copy(update={"fault": fault}), b"", "")
    assert choose_targets(run).targets[0].gpu == 5
