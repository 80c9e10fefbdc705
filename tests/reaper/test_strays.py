"""Pods that no ledger names, as their request was under way when their run was reaped, have to give their word too."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gameday.agent.task import InjectTask
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import agent_pod
from gameday.host.privileges import PodSecurity
from gameday.reaper.reap import reap
from gameday.values.results import Cleanliness
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import Kubelet, termination_message, unique

CAP = {"type": "power_cap", "watts": 300}


@pytest.fixture
def stray(world: ScriptedWorld, runner: Kubernetes) -> str:
    """The run of an injector's pod without a ledger."""
    run, node = unique("late"), world.add_node()
    task = InjectTask(run_id=run, node=node, gpu=1, fault=CAP, hold_s=60)
    manifest = agent_pod(
        f"gd-{run}-inject",
        task=task.model_dump_json(),
        role="inject",
        run_id=run,
        node=node,
        profile=runner.profile,
        deadline=timedelta(seconds=70),
        security=PodSecurity(why="a test"),
    )
    runner.create_pod(manifest)
    return run


def test_a_stray_injector_that_took_its_fault_out_is_clean(
    world: ScriptedWorld, reaper: Kubernetes, stray: str
) -> None:
    with Kubelet(world, stray, {"inject": termination_message(Cleanliness.CLEAN)}) as kubelet:
        (reaped,) = reap(reaper).reaped
    assert reaped.cleanliness is Cleanliness.CLEAN
    assert kubelet.ended == [f"gd-{stray}-inject"]
    assert world.pods(stray) == []


def test_a_stray_injector_without_a_word_is_followed_by_a_second_agent(
    world: ScriptedWorld, reaper: Kubernetes, stray: str
) -> None:
    words = {"inject": None, "undo": termination_message(Cleanliness.DIRTY, "the power limit is still 300 W")}
    with Kubelet(world, stray, words) as kubelet:
        result = reap(reaper)
    assert kubelet.ended == [f"gd-{stray}-inject", f"gd-{stray}-inject-undo"]
    assert [one.cleanliness for one in result.reaped] == [Cleanliness.DIRTY]
    assert not result.is_clean
    assert world.pods(stray) == []
