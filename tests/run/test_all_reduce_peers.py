"""The peers of an all-reduce: by the seed, fit, no targets, and in a season those first that nobody else breaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gameday.errors import StepFailedError
from gameday.ledger.lease import Leases, node_lease
from gameday.run.all_reduce import choose_peers
from gameday.run.run import Run
from gameday.run.season_member import SeasonMember
from gameday.run.targets import choose_targets
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import unique

NewRun = Callable[..., Run]
ODD = {"key": "example.com/maintenance", "value": "", "effect": "NoSchedule"}


@pytest.fixture
def group() -> dict[str, str]:
    return {"test.example/group": unique("g")}


@pytest.mark.slow
def test_a_seed_chooses_the_same_peers_and_never_a_target(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str]
) -> None:
    names = {world.add_node(labels=group) for _ in range(5)}
    chosen = []
    for seed in (*range(6), *range(6)):
        run = new_run(nodes=2, selector=group, seed=seed)
        targets = {target.node for target in choose_targets(run, {})}
        chosen.append(choose_peers(run, min(targets), 2, {}))
        assert set(chosen[-1]) <= names - targets
    assert chosen[:6] == chosen[6:]
    assert len(set(chosen)) > 1


def test_too_few_peers_say_what_the_others_lack(world: ScriptedWorld, new_run: NewRun, group: dict[str, str]) -> None:
    target, tainted, excluded = (world.add_node(labels=group) for _ in range(3))
    world.taint(tainted, ODD)
    with pytest.raises(StepFailedError) as refused:
        choose_peers(new_run(selector=group), target, 1, {excluded: "a dead run left a fault there"})
    assert "0 of 1 peers found" in refused.value.why
    assert f"{tainted}: carries example.com/maintenance" in refused.value.why
    assert f"{excluded}: a dead run left a fault there" in refused.value.why


def test_for_nccl_a_peer_has_a_free_gpu(world: ScriptedWorld, new_run: NewRun, group: dict[str, str]) -> None:
    target, full = (world.add_node(labels=group) for _ in range(2))
    world.add_pod(unique("job"), "another-run", node=full, gpus=8)
    run = new_run(selector=group)
    assert choose_peers(run, target, 1, {}) == (full,)
    with pytest.raises(StepFailedError, match=f"{full}: 0 GPUs are free"):
        choose_peers(run, target, 1, {}, gpus=1)
    free = world.add_node(labels=group)
    assert choose_peers(run, target, 1, {}, gpus=1) == (free,)


def test_in_a_season_the_nodes_of_siblings_come_last(
    world: ScriptedWorld, new_run: NewRun, group: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, *others = (world.add_node(labels=group) for _ in range(5))
    free = others[2]
    held = others[0]
    run = new_run(selector=group)
    siblings = frozenset(others) - {free}
    member = SeasonMember(season="s", targets=(target,), seed=1, sibling_nodes=siblings)
    monkeypatch.setattr(run.record, "member", member)
    leases = Leases(run.kubernetes, "another-run", lambda _: None)
    leases.acquire(node_lease(held))
    try:
        assert choose_peers(run, target, 4, {})[0] == free
        assert choose_peers(run, target, 4, {})[-1] == held
        assert choose_peers(run, target, 4, {}, before=(held,))[-1] == held
    finally:
        leases.release()
    assert choose_peers(run, target, 2, {}, before=(held,))[0] == held
