"""Only what a fault or its detector did to a running pod is held against the plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.history.events import WaitStarted, WorkloadSeen
from gameday.run.run import Run
from gameday.tasks.running_pods import note_running_pods, pods_before_fault
from tests.support.runs import follow_as_target, quick_plan
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.script import AgentScript, Script

NODE, POD = "gpu-node-1", "train-gpu-node-1"
Fate = Callable[[ScriptedCluster], None]


def runs(cluster: ScriptedCluster) -> None:
    """Leave the pod alone."""


def ended(cluster: ScriptedCluster) -> None:
    cluster.finish(POD)


def evicted(cluster: ScriptedCluster) -> None:
    cluster.evict(POD)


def judged(folder: Path, wanted: str, fate: Fate, *, ends_after_s: float = 0.2) -> tuple[WorkloadSeen, Run]:
    """Return the pod's event, and the run that noted it half a second after the pod's fate began."""
    cluster = ScriptedCluster(Script(agents={"": AgentScript(undoes_s=ends_after_s)}), nodes=1)
    with cluster.run(quick_plan(wanted), folder) as run:
        target = follow_as_target(run, NODE)
        fault: Any = SimpleNamespace(node=NODE, pods_before=pods_before_fault(run, target))
        fate(cluster)
        cluster.clock.sleep(0.5)
        note_running_pods(run, fault)
        (event,) = run.history().of(WorkloadSeen)
        return event, run


@pytest.mark.parametrize(
    ("wanted", "fate", "ends_after_s", "ok"),
    [
        ("kept", runs, 0.2, True),
        ("kept", ended, 0.2, True),
        ("kept", evicted, 0.2, False),
        ("kept", evicted, 60.0, False),
        ("evicted", evicted, 0.2, True),
        ("evicted", ended, 0.2, None),
        ("evicted", runs, 0.2, False),
        ("any", evicted, 0.2, True),
    ],
)
def test_a_pod_that_ended_by_itself_is_not_the_faults(
    wanted: str, fate: Fate, ends_after_s: float, ok: bool | None, tmp_path: Path
) -> None:
    assert judged(tmp_path, wanted, fate, ends_after_s=ends_after_s)[0].ok is ok


def test_an_evicted_pod_has_its_own_grace_period_to_leave(tmp_path: Path) -> None:
    event, run = judged(tmp_path, "evicted", evicted, ends_after_s=2.0)
    assert (event.ok, event.node, event.phase) == (True, None, "gone")
    (waited,) = run.history().of(WaitStarted)
    assert waited.deadline_s == 12.0  # the pod's grace period of two seconds, and ten for its end to be seen


def test_a_pod_that_does_not_leave_is_still_ending(tmp_path: Path) -> None:
    assert judged(tmp_path, "evicted", evicted, ends_after_s=60.0)[0].detail.endswith("still ending")


def test_a_pod_that_was_leaving_before_the_fault_is_nobodys_concern(tmp_path: Path) -> None:
    cluster = ScriptedCluster(Script(agents={"": AgentScript(undoes_s=60.0)}), nodes=1)
    with cluster.run(quick_plan(), tmp_path) as run:
        evicted(cluster)
        assert pods_before_fault(run, follow_as_target(run, NODE)) == ()
