"""Pods that no ledger names, as their request was under way when their run was reaped, have to give their word too."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gameday.agent.task import InjectTask
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import RUN_LABEL, agent_pod
from gameday.host.privileges import PodSecurity
from gameday.reaper import reap as reap_module
from gameday.reaper.reap import reap
from gameday.values.results import Cleanliness
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import NAMESPACE, Kubelet, termination_message, unique

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


def test_a_stray_pod_of_a_job_goes_with_its_job(world: ScriptedWorld, reaper: Kubernetes) -> None:
    """A Job's controller would make it again."""
    run = unique("late")
    job, node = f"gd-{run}-resubmit", world.add_node()
    world.add_job(job, run, node)
    with Kubelet(world, run, {}):
        (reaped,) = reap(reaper).reaped
    assert (reaped.entry.object, reaped.entry.node) == (f"job/{job}", node)
    assert (reaped.cleanliness, reaped.evidence) == (Cleanliness.CLEAN, (f"job {job} and its pods deleted",))
    assert world.pods(run) == []
    assert world.batch.list_namespaced_job(NAMESPACE).items == []


def test_a_stray_pod_of_another_owner_is_deleted_by_itself(world: ScriptedWorld, reaper: Kubernetes) -> None:
    run, node = unique("late"), world.core.read_node(world.add_node()).metadata
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    variables = [{"name": "EMPTY"}, {"name": "MODE", "value": "no task of ours"}]
    pod = {
        "metadata": {"name": f"gd-{run}-p", "labels": {RUN_LABEL: run}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "main", "image": "busybox:1", "env": variables}]},
    }
    world.core.create_namespaced_pod(NAMESPACE, pod)
    (reaped,) = reap(reaper).reaped
    assert (reaped.entry.object, reaped.cleanliness) == (f"pod/gd-{run}-p", Cleanliness.CLEAN)
    assert world.pods(run) == []


def test_a_stray_pod_that_something_unforeseen_keeps_is_named(
    world: ScriptedWorld, reaper: Kubernetes, stray: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a fault of another package may raise anything."""

    def broken(*_: object) -> None:
        raise RuntimeError("not foreseen")

    monkeypatch.setattr(reap_module, "undo_entry", broken)
    (reaped,) = reap(reaper).reaped
    assert (reaped.run_id, reaped.entry.object) == (stray, f"pod/gd-{stray}-inject")
    assert reaped.cleanliness is Cleanliness.UNKNOWN
    assert "not foreseen" in reaped.evidence[0]


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
