"""Who may be a target: the same seed chooses the same nodes, and every refusal says what each lacked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gameday.cluster.nodes import GPU_COUNT_LABEL
from gameday.errors import RefusedError
from gameday.history.events import TargetsChosen
from gameday.plan.models import Plan
from gameday.run.agents import qa_task
from gameday.run.run import Run
from gameday.run.targets import choose_targets, opt_in_labels, pool_labels
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import unique

NewRun = Callable[..., Run]
FAULTY = {"key": "trainy.konduktor.ai/faulty", "value": "mine", "effect": "NoSchedule"}
ODD = {"key": "example.com/maintenance", "value": "", "effect": "NoSchedule"}
USUAL = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.fixture
def group() -> dict[str, str]:
    return {"test.example/group": unique("g")}


def refused(run: Run, excluded: dict[str, str] | None = None) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        choose_targets(run, excluded or {})
    assert run.history().of(TargetsChosen) == []
    return caught.value


def test_a_seed_chooses_the_same_targets_in_the_same_order(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    names = {world.add_node(labels=group) for _ in range(6)}
    chosen = [choose_targets(new_run(nodes=1, selector=group, seed=seed), {}) for seed in [*range(8), *range(8)]]
    assert chosen[:8] == chosen[8:]
    assert {target.node for targets in chosen for target in targets} <= names
    assert len({targets[0].node for targets in chosen}) > 1, "a seed that changes nothing is no seed"
    assert len({targets[0].gpu for targets in chosen}) > 1


def test_the_choice_is_noted_with_its_rule(world: ScriptedWorld, new_run: NewRun, group: dict[str, str]) -> None:
    for _ in range(3):
        world.add_node(labels=group)
    run = new_run(selector=group, seed=7)
    chosen = choose_targets(run, {})
    (noted,) = run.history().of(TargetsChosen)
    assert (noted.targets, noted.candidates, noted.seed) == (tuple(one.target for one in chosen), 3, 7)
    assert noted.rule == "from 3 opted-in nodes (seed 7), preferring nodes with a free GPU"
    assert [one.before.node for one in chosen] == [one.node for one in chosen]


def test_an_unfit_node_is_passed_over_and_the_order_kept(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    for _ in range(4):
        world.add_node(labels=group)
    first = choose_targets(new_run(selector=group, seed=3), {})[0].node
    world.taint(first, ODD)
    second = choose_targets(new_run(selector=group, seed=3), {})[0].node
    assert second != first
    world.taint(first)
    assert choose_targets(new_run(selector=group, seed=3), {})[0].node == first


def test_a_node_with_what_nobody_took_out_is_no_target(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    """A power cap of last week, say: neither taint nor condition shows it."""
    dirty, clean = (world.add_node(labels=group) for _ in range(2))
    excluded = {dirty: "still has what run r left and nobody took out: create agent pod (inject)"}
    run, other = new_run(names=[dirty, clean]), new_run(names=[dirty])
    assert choose_targets(run, excluded)[0].node == clean
    assert excluded[dirty] in refused(other, excluded).why


@pytest.mark.parametrize(
    ("floor", "gpu", "said"),
    [
        (8, None, "has 4 GPUs, and qa.floors.gpus is 8: QA would keep it out of service"),
        (None, 4, "has 4 GPUs, and fault.gpu, which counts from 0, is 4"),
        (4, 3, ""),
    ],
)
def test_a_plan_made_for_other_nodes_is_refused_before_it_breaks_one(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str], floor: int | None, gpu: int | None, said: str
) -> None:
    node = world.add_node(labels={**group, GPU_COUNT_LABEL: "4"})

    def for_other_nodes(plan: Plan) -> Plan:
        floors = plan.qa.floors.model_copy(update={"gpus": floor})
        changes = {
            "qa": plan.qa.model_copy(update={"floors": floors}),
            "fault": plan.fault.model_copy(update={"gpu": gpu}),
        }
        return plan.model_copy(update=changes)

    run = new_run(change=for_other_nodes, selector=group)
    if said:
        assert refused(run).why == f"0 of 1 targets found; {node}: {said}"
    else:
        assert choose_targets(run, {})[0].node == node


def test_the_operators_own_gpu_taint_is_ordinary(world: ScriptedWorld, new_run: NewRun, group: dict[str, str]) -> None:
    node = world.add_node(labels=group, taints=[USUAL])
    assert choose_targets(new_run(selector=group), {})[0].node == node


def test_a_pools_own_taint_is_ordinary_if_the_profile_lists_it_and_our_pods_tolerate_it(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    node = world.add_node(labels=group, taints=[{"key": "sku", "value": "gpu", "effect": "NoSchedule"}])
    assert "carries sku=gpu:NoSchedule" in refused(new_run(selector=group)).why
    run = new_run(profile={"ordinary_taint_keys": ("sku", FAULTY["key"])}, selector=group)
    assert choose_targets(run, {})[0].node == node
    assert run.gpu_pod_template.tolerated_taint_keys == ("sku",), "what quarantines a node must keep our pods off"


def test_a_resubmitted_job_may_run_in_the_whole_pool_of_which_few_nodes_opted_in(new_run: NewRun) -> None:
    run = new_run()
    assert pool_labels(run) == {"nvidia.com/gpu.present": "true"}
    without = run.profile.guardrails.model_copy(update={"pool_selector": {}})
    assert pool_labels(new_run(profile={"guardrails": without})) == opt_in_labels(run)


def test_shares_of_time_are_no_gpus(world: ScriptedWorld, new_run: NewRun, group: dict[str, str]) -> None:
    """A node of two GPUs that offers eight shares: no fault goes to GPU 5, and QA counts two."""
    node = world.add_node(labels={**group, GPU_COUNT_LABEL: "2"})
    runs = [new_run(selector=group, seed=seed) for seed in range(8)]
    assert {choose_targets(run, {})[0].gpu for run in runs} == {0, 1}
    (chosen,) = choose_targets(runs[0], {})
    assert chosen.node == node
    assert (chosen.before.allocatable_gpus, qa_task(runs[0], chosen).expected_gpus) == (8, 2)


def test_choosing_costs_one_list_and_two_looks(world: ScriptedWorld, new_run: NewRun, group: dict[str, str]) -> None:
    for _ in range(4):
        world.add_node(labels=group)
    run = new_run(selector=group)
    choose_targets(run, {})
    assert run.kubernetes.counter.cost().by_call == {"LIST nodes": 1, "WATCH nodes": 1, "WATCH pods": 1}


def test_where_the_plan_judges_running_pods_a_node_that_runs_some_comes_first(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    names = [world.add_node(labels=group) for _ in range(4)]
    usual = choose_targets(new_run(selector=group), {})[0].node
    busy = next(name for name in names if name != usual)
    world.add_pod(unique("training"), "", busy, gpus=2)
    world.add_pod(unique("no-gpu"), "", usual)
    run = new_run(running_pods="kept", selector=group)
    assert choose_targets(run, {})[0].node == busy
    assert run.history().of(TargetsChosen)[0].rule.endswith(", preferring nodes with a free GPU and running GPU pods")
    assert choose_targets(new_run(selector=group), {})[0].node == usual
    both = choose_targets(new_run(running_pods="kept", selector=group, nodes=2), {})
    assert [target.node for target in both] == [busy, usual]


def test_a_node_without_a_free_gpu_comes_last(world: ScriptedWorld, new_run: NewRun, group: dict[str, str]) -> None:
    names = {world.add_node(labels=group) for _ in range(3)}
    usual = choose_targets(new_run(selector=group), {})[0].node
    world.add_pod(unique("training"), "", usual, gpus=8)
    assert choose_targets(new_run(selector=group), {})[0].node in names - {usual}
    every = choose_targets(new_run(selector=group, nodes=3), {})
    assert every[-1].node == usual


def test_many_idle_nodes_are_targets_where_no_others_are(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    names = {world.add_node(labels=group) for _ in range(8)}
    chosen = choose_targets(new_run(running_pods="kept", selector=group, nodes=8), {})
    assert {target.node for target in chosen} == names


def test_named_nodes_are_taken_in_the_plans_order(world: ScriptedWorld, new_run: NewRun) -> None:
    names = sorted((world.add_node(), world.add_node()), reverse=True)
    run = new_run(nodes=1, names=names)
    assert [target.node for target in choose_targets(run, {})] == names[:1]
    (noted,) = run.history().of(TargetsChosen)
    assert (noted.candidates, noted.rule == "named by the plan") == (2, True)


def test_a_named_node_must_have_opted_in_too(world: ScriptedWorld, new_run: NewRun) -> None:
    node = world.add_node(labels={"gameday.dev/opt-in": "false"})
    error = refused(new_run(names=[node]))
    assert f"{node}: lacks label gameday.dev/opt-in=true" in error.why


def test_a_named_node_that_is_not_there(new_run: NewRun) -> None:
    error = refused(new_run(names=["no-such-node"]))
    assert error.why == "0 of 1 targets found; no-such-node: no node of this name in http://scripted.invalid"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"ready": "False"}, "Ready is False"),
        ({"ready": "Unknown"}, "Ready is Unknown"),
        ({"unschedulable": True}, "is cordoned"),
        ({"taints": [FAULTY]}, "already carries trainy.konduktor.ai/faulty=mine:NoSchedule, which only the"),
        ({"taints": [USUAL, ODD]}, "carries example.com/maintenance:NoSchedule"),
        (
            {"offers": {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-3g.40gb": "2"}},
            "offers parts of GPUs (nvidia.com/mig-1g.10gb, nvidia.com/mig-3g.40gb)",
        ),
        ({"offers": {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "7"}}, "offers parts of GPUs (nvidia.com/mig-1g"),
        ({"offers": {"nvidia.com/gpu.shared": "32"}}, "offers parts of GPUs (nvidia.com/gpu.shared)"),
        ({"offers": {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "0"}}, "offers no GPU (allocatable"),
        ({"of": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}}, "offers MIG slices as GPUs"),
        ({"of": {"nvidia.com/gpu.workload.config": "vm-passthrough"}}, "gives its GPUs to virtual machines"),
    ],
    ids=[
        *("not-ready", "unknown", "cordoned", "faulty", "odd-taint", "mig-mixed", "mig-beside-whole", "shared"),
        *("none", "mig-single", "vfio"),
    ],
)
def test_an_unfit_node_says_why(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str], how: dict[str, Any], why: str
) -> None:
    node = world.add_node(labels={**group, **how.pop("of", {})}, **how)
    error = refused(new_run(selector=group))
    assert error.why.startswith(f"0 of 1 targets found; {node}: {why}")
    assert error.hint == "mend the nodes, or change targets in the plan"


def test_a_node_that_offers_its_gpus_by_claims_is_fit(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    node = world.add_node(labels=group, offers={"cpu": "64"})
    assert choose_targets(new_run(selector=group), {})[0].node == node


def test_too_few_fit_nodes_say_how_many(world: ScriptedWorld, new_run: NewRun, group: dict[str, str]) -> None:
    world.add_node(labels=group)
    cordoned = world.add_node(labels=group, unschedulable=True)

    def two(plan: Plan) -> Plan:
        return plan.model_copy(update={"targets": plan.targets.model_copy(update={"nodes": 2})})

    run = new_run(change=two, nodes=1, selector=group)
    assert refused(run).why == f"1 of 2 targets found; {cordoned}: is cordoned"


def test_nobody_opted_in(new_run: NewRun) -> None:
    error = refused(new_run(selector={"test.example/group": "nobody"}))
    assert error.why == "no node carries gameday.dev/opt-in=true,test.example/group=nobody"
    assert error.hint == "kubectl label node <node> gameday.dev/opt-in=true lets game-days touch it"


def test_a_cluster_of_unfit_nodes_is_not_searched_through(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    for _ in range(9):
        world.add_node(labels=group, unschedulable=True)
    run = new_run(selector=group)
    assert refused(run).why.count("is cordoned") == 5
    assert run.kubernetes.counter.cost().by_call["WATCH nodes"] <= 6


def test_a_gpu_the_plan_names_is_kept(world: ScriptedWorld, new_run: NewRun, group: dict[str, str]) -> None:
    world.add_node(labels=group)

    def fifth(plan: Plan) -> Plan:
        return plan.model_copy(update={"fault": plan.fault.model_copy(update={"gpu": 5})})

    run = new_run(change=fifth, selector=group)
    assert choose_targets(run, {})[0].gpu == 5
