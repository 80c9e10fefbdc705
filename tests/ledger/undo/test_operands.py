"""The undo of faults for which the GPU operator's operands leave the node."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.operands import AWAY
from gameday.cluster.pods import PodFollower
from gameday.errors import KubernetesError
from gameday.ledger import undo
from gameday.ledger.entries import (
    BringBackOperands,
    UndoResult,
)
from gameday.ledger.undo import undo_entry
from gameday.values.results import Cleanliness
from tests.ledger.undo.entries import entry, take_out
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import PATIENCE_S, Kubelet, termination_message

PLUGIN = "nvidia.com/gpu.deploy.device-plugin"


@pytest.mark.parametrize(
    ("value", "after", "cleanliness"),
    [
        (AWAY, "true", Cleanliness.CLEAN),
        ("true", "true", Cleanliness.CLEAN),
        ("false", "false", Cleanliness.CLEAN),  # a person's word since then
        (f"{AWAY}_paused-for-driver-upgrade", f"{AWAY}_paused-for-driver-upgrade", Cleanliness.UNKNOWN),
    ],
)
def test_operands_come_back_by_their_labels_as_we_left_them(
    world: ScriptedWorld,
    reaper: Kubernetes,
    pods: PodFollower,
    run: str,
    value: str,
    after: str,
    cleanliness: Cleanliness,
) -> None:
    world.core.patch_node("n1", {"metadata": {"labels": {PLUGIN: value, "mine": "kept"}}})
    done = undo_entry(reaper, entry(BringBackOperands(labels=(PLUGIN,))), run, pods)
    assert (done.cleanliness, done.evidence) == (cleanliness, (f"label {PLUGIN}: {after}",))
    labels = world.core.read_node("n1").metadata.labels
    assert (labels[PLUGIN], labels["mine"]) == (after, "kept")


def plugin(world: ScriptedWorld) -> str:
    return str(world.core.read_node("n1").metadata.labels[PLUGIN])


@pytest.mark.parametrize("reported", [Cleanliness.CLEAN, Cleanliness.DIRTY])
def test_operands_are_away_while_the_fault_comes_out_and_back_once_that_is_known(
    world: ScriptedWorld,
    reaper: Kubernetes,
    pods: PodFollower,
    run: str,
    monkeypatch: pytest.MonkeyPatch,
    reported: Cleanliness,
) -> None:
    world.core.patch_node("n1", {"metadata": {"labels": {PLUGIN: "true"}}})
    meanwhile = list[str]()

    def out(*_: Any, **__: Any) -> UndoResult:
        meanwhile.append(plugin(world))
        return UndoResult(reported, ("as the agent read it",))

    monkeypatch.setattr(undo, "_take_out_fault", out)
    fault = take_out("i").model_copy(update={"operands": (PLUGIN,)})
    done = undo_entry(reaper, entry(fault), run, pods)
    assert (done.cleanliness, done.evidence[-1]) == (reported, f"label {PLUGIN}: true")
    assert (meanwhile, plugin(world)) == ([AWAY], "true")


def test_operands_that_somebody_else_pauses_meanwhile_are_not_called_back(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.core.patch_node("n1", {"metadata": {"labels": {PLUGIN: "true"}}})
    paused = f"{AWAY}_paused-for-driver-upgrade"

    def out(*_: Any, **__: Any) -> UndoResult:
        world.core.patch_node("n1", {"metadata": {"labels": {PLUGIN: paused}}})
        return UndoResult(Cleanliness.CLEAN, ("out",))

    monkeypatch.setattr(undo, "_take_out_fault", out)
    fault = take_out("i").model_copy(update={"operands": (PLUGIN,)})
    done = undo_entry(reaper, entry(fault), run, pods)
    assert (done.cleanliness, done.evidence) == (Cleanliness.UNKNOWN, ("out", f"label {PLUGIN}: {paused}"))


def test_operands_are_not_sent_away_for_a_fault_that_took_itself_out(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.core.patch_node("n1", {"metadata": {"labels": {PLUGIN: "true"}}})
    world.add_pod("i", run, node="n1", role="inject")
    world.report("i", termination_message(Cleanliness.CLEAN, "out"))
    assert pods.wait(lambda: (seen := pods.seen("i")) is not None and seen.ended, PATIENCE_S)
    monkeypatch.setattr(undo, "send_away", lambda *_: pytest.fail("sent away"))
    fault = take_out("i").model_copy(update={"operands": (PLUGIN,)})
    with Kubelet(world, run, {"inject": termination_message(Cleanliness.CLEAN, "out")}):
        assert undo_entry(reaper, entry(fault), run, pods).cleanliness is Cleanliness.CLEAN
    assert plugin(world) == "true"


@pytest.mark.parametrize(
    ("status", "tried", "cleanliness"), [(404, True, Cleanliness.CLEAN), (500, False, Cleanliness.UNKNOWN)]
)
def test_only_on_a_node_that_is_gone_may_a_fault_be_taken_out_with_its_operands_there(
    reaper: Kubernetes,
    pods: PodFollower,
    run: str,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    tried: bool,
    cleanliness: Cleanliness,
) -> None:
    def refused(*_: Any) -> None:
        raise KubernetesError("https://server", "patch node: refused", status=status)

    tries = list[int]()
    monkeypatch.setattr(undo, "send_away", refused)
    monkeypatch.setattr(
        undo, "_take_out_fault", lambda *_, **__: tries.append(1) or UndoResult(Cleanliness.CLEAN, ("out",))
    )
    fault = take_out("i").model_copy(update={"operands": (PLUGIN,)})
    node = "gone" if status == 404 else "n1"
    assert (undo_entry(reaper, entry(fault, node), run, pods).cleanliness, bool(tries)) == (cleanliness, tried)


def test_operands_stay_away_while_it_is_not_known_whether_the_fault_is_out(
    world: ScriptedWorld, reaper: Kubernetes, pods: PodFollower, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.core.patch_node("n1", {"metadata": {"labels": {PLUGIN: "true"}}})
    results = [UndoResult(Cleanliness.UNKNOWN, ("still undoing",)), UndoResult(Cleanliness.CLEAN, ("out",))]
    monkeypatch.setattr(undo, "_take_out_fault", lambda *_, **__: results.pop(0))
    fault = take_out("i").model_copy(update={"operands": (PLUGIN,)})
    first = undo_entry(reaper, entry(fault), run, pods)
    assert (first.cleanliness, plugin(world)) == (Cleanliness.UNKNOWN, AWAY)
    assert "stay away until it is out" in first.evidence[-1]
    assert undo_entry(reaper, entry(fault), run, pods).cleanliness is Cleanliness.CLEAN
    assert plugin(world) == "true"


def test_operands_of_a_node_that_is_gone_are_nobodys(reaper: Kubernetes, pods: PodFollower, run: str) -> None:
    done = undo_entry(reaper, entry(BringBackOperands(labels=(PLUGIN,)), "gone"), run, pods)
    assert (done.cleanliness, done.evidence) == (Cleanliness.CLEAN, ("node gone is no longer there",))
