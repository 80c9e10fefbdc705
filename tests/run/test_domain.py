"""Which nodes a domain's plan strikes: all of one rack, never more than may be, none where nobody knows the rack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gameday.errors import RefusedError
from gameday.history.events import TargetsChosen
from gameday.plan.models import Plan
from gameday.run.run import Run
from gameday.run.targets import choose_targets
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import unique

NewRun = Callable[..., Run]
RACK = "topology.kubernetes.io/rack"


@pytest.fixture
def group() -> dict[str, str]:
    """Labels of this test's own part of the GPU pool."""
    return {"nvidia.com/gpu.present": "true", "test.example/group": unique("g")}


def rack(world: ScriptedWorld, group: dict[str, str], name: str, nodes: int = 4) -> set[str]:
    return {world.add_node(labels={**group, RACK: name}) for _ in range(nodes)}


def allowing(most: int) -> Callable[[Plan], Plan]:
    """A change of the plan's limit."""
    return lambda plan: plan.model_copy(update={"guardrails": plan.guardrails.model_copy(update={"max_nodes": most})})


def run_on(new_run: NewRun, group: dict[str, str], most: int = 4, seed: int = 1, **domain: Any) -> Run:
    return new_run(change=allowing(most), selector=group, seed=seed, domain={"label": RACK, **domain})


def refused(run: Run) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        choose_targets(run, {})
    assert run.history().of(TargetsChosen) == []
    return caught.value


def test_every_gpu_node_of_the_named_domain_is_a_target_and_no_other(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    rack(world, group, "a")
    of_b = rack(world, group, "b", 3)
    run = run_on(new_run, group, value="b")
    assert {one.node for one in choose_targets(run, {})} == of_b
    (noted,) = run.history().of(TargetsChosen)
    assert noted.domain is not None
    assert (str(noted.domain), noted.domain.nodes, noted.candidates) == (f"{RACK}=b", 3, 3)


def test_without_a_value_the_seed_chooses_the_domain(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    racks = [rack(world, group, name, 2) for name in ("a", "b", "c")]
    struck = [{one.node for one in choose_targets(run_on(new_run, group, seed=seed), {})} for seed in [*range(6), 0]]
    assert struck[0] == struck[6]
    assert all(nodes in racks for nodes in struck)
    assert len({frozenset(nodes) for nodes in struck}) > 1


def test_a_share_is_rounded_up_to_whole_nodes(world: ScriptedWorld, new_run: NewRun, group: dict[str, str]) -> None:
    rack(world, group, "a", 5)
    assert len(choose_targets(run_on(new_run, group, value="a", percent=50), {})) == 3


def test_more_nodes_than_may_be_broken_are_refused_before_one_is_watched(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    rack(world, group, "a")
    found = refused(run_on(new_run, group, most=3, value="a"))
    assert found.why == (
        f"the plan strikes 4 of the 4 GPU nodes with {RACK}=a, and at most 3 may be broken (guardrails.max_nodes)"
    )
    assert "targets.domain.percent" in found.hint
    run = run_on(new_run, group, value="a")
    limits = run.profile.guardrails.model_copy(update={"max_nodes": 2})
    strict = new_run(
        change=allowing(4), profile={"guardrails": limits}, selector=group, domain={"label": RACK, "value": "a"}
    )
    assert "at most 2 may be broken" in refused(strict).why


def test_a_label_that_half_of_the_nodes_lack_is_refused_with_the_command_that_shows_them(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    rack(world, group, "a")
    without = [world.add_node(labels=group) for _ in range(4)]
    found = refused(run_on(new_run, group, value="a"))
    assert found.why.startswith(f"4 GPU nodes carry no label {RACK} (")
    assert all(node in found.why for node in without)
    selector = ",".join(f"{key}={value}" for key, value in group.items())
    assert f"kubectl get nodes -l '{selector},!{RACK}' shows them" in found.hint


def test_a_node_of_the_domain_that_has_not_opted_in_keeps_the_whole_from_being_struck(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    rack(world, group, "a", 3)
    out = world.add_node(labels={**group, RACK: "a", "gameday.dev/opt-in": "false"})
    found = refused(run_on(new_run, group, value="a"))
    assert found.why.startswith("3 of 4 targets found; ")
    assert out in found.why
    assert len(choose_targets(run_on(new_run, group, value="a", percent=75), {})) == 3


def test_a_value_that_no_node_has_is_refused_with_the_command_that_shows_the_values(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    rack(world, group, "a")
    found = refused(run_on(new_run, group, value="z"))
    assert found.why == f"no GPU node carries {RACK}=z"
    assert f"-L {RACK} shows the values" in found.hint
