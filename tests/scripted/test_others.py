"""The deeds of somebody else on a target: they abort the game-day, stay, and are not counted as ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.history.events import Event, FaultInjected, KubernetesEventSeen, LeftToOwner, Remediated
from gameday.values.results import Cleanliness
from tests.support.plans import changed
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.game_day import Played, play
from tests.support.scripted.plans import QUICK, loaded
from tests.support.scripted.script import AgentScript, NodeChange, NodeEvent, Script
from tests.support.scripted.wire import Moment

LONG = loaded(changed(QUICK, "fault.hold", "60s"))
RACK = "maintenance.example/rack"


def cordon(by: str) -> NodeChange:
    return NodeChange({"spec": {"unschedulable": True}}, after_s=0.3, by=by)


def taint(key: str, by: str) -> NodeChange:
    return NodeChange({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}, after_s=0.4, by=by)


def meanwhile(reports: Path, *changes: NodeChange) -> Played:
    return play(LONG, lambda script: replace(script, changes=changes, fires=(10.0,)), reports=reports)


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ((cordon("kubectl-cordon"),), "the cordon of gpu-node-1"),
        ((cordon("k8s-driver-manager"),), "the cordon of gpu-node-1"),
        ((taint(RACK, "kubectl-taint"),), f"taint {RACK} of gpu-node-1"),
        ((taint("ToBeDeletedByClusterAutoscaler", "cluster-autoscaler"),), "taint ToBeDeletedByClusterAutoscaler of"),
        ((cordon("kubectl-cordon"), taint(RACK, "kubectl-taint")), f"the cordon of gpu-node-1; taint {RACK} of"),
    ],
)
def test_a_node_that_somebody_takes_is_left_to_them(changes: tuple[NodeChange, ...], left: str, reports: Path) -> None:
    played = meanwhile(reports, *changes)
    assert (played.outcome, played.result.exit_code) == (RunOutcome.ABORTED, 3)
    assert played.result.cleanliness is Cleanliness.CLEAN
    assert f"by somebody else ({changes[0].by})" in played.result.why
    assert f"left to its owner, who put it there during the run: {left}" in played.result.why
    assert played.status("node-as-before") is Status.UNKNOWN
    assert played.cluster.left() == ["gpu-node-1 out of service"], "their cordon or taint stays"
    assert not played.cluster.faults_in


def test_a_taint_of_an_unknown_detector_is_still_the_faults_own(reports: Path) -> None:
    played = meanwhile(reports, taint("example.com/broken", "some-detector"))
    assert not played.history.of(LeftToOwner)
    assert (played.result.cleanliness, played.result.exit_code) == (Cleanliness.DIRTY, 4)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ((), "node gpu-node-1 was deleted during the run (no Event says by whom)"),
        ((NodeEvent("ScaleDown"),), "ScaleDown"),
        ((NodeEvent("DisruptionTerminating"), NodeEvent("NodeNotReady", after_s=0.3)), "DisruptionTerminating"),
    ],
)
def test_a_node_that_is_deleted_ends_the_run_and_says_by_whom(
    events: tuple[NodeEvent, ...], said: str, reports: Path
) -> None:
    clusters: list[ScriptedCluster] = []

    def on_write(event: Event, moment: Moment) -> None:
        last = events[-1].reason if events else None
        struck = event.reason == last if isinstance(event, KubernetesEventSeen) else last is None
        if struck and moment == "after" and isinstance(event, KubernetesEventSeen | FaultInjected):
            clusters[0].remove_node("gpu-node-1")

    def change(script: Script) -> Script:
        return replace(script, events=events, fires=(10.0,))

    played = play(LONG, change, reports=reports, prepare=clusters.append, on_write=on_write)
    assert played.outcome is RunOutcome.ABORTED
    assert "node gpu-node-1 was deleted during the run" in played.result.why
    assert said in played.result.why
    assert "namespace" not in played.result.why


def test_an_agent_that_says_nothing_on_a_node_that_is_not_ready_names_the_node(reports: Path) -> None:
    def change(script: Script) -> Script:
        unready = NodeChange.condition("Ready", "Unknown", "NodeStatusUnknown", after_s=0.3)
        return replace(script, changes=(unready,), agents={"remediate": AgentScript(works_s=9999)})

    played = play(loaded(QUICK), change, reports=reports)
    (done,) = played.history.of(Remediated)
    assert "(Running; node gpu-node-1 is not Ready: its condition is Unknown)" in done.detail
