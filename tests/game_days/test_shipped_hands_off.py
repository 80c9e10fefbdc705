"""The shipped hands-off plans against our own repairer, and a foreign stack's loop by its stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gameday.cluster.operands import AWAY
from gameday.detectors.load import load_detector
from gameday.history.events import LabelSeen, RepairHopSeen
from gameday.plan.catalogue import find_plan
from gameday.values.results import RepairHop, RepairKind
from gameday_rehearsal.blueprint import Detector, Size
from gameday_rehearsal.nodes.gpu_operator import GpuOperator
from tests.game_days.conftest import Arena, Played, arena_in, changed

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(600)]

PLANS = Path(__file__).parents[2] / "plans"


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """A cluster with our repairer, a spare node, and a node that was repaired again and again."""
    size = Size(nodes=8, gpus=8, hold_outs=1, offender=True)
    with arena_in(tmp_path_factory.mktemp("repaired"), size, repair=True) as started:
        yield started


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """A cluster in which a stand-in detects and repairs as NVSentinel's profile describes."""
    folder, size = tmp_path_factory.mktemp("foreign"), Size(nodes=4, gpus=8)
    stack = load_detector("nvsentinel")
    with arena_in(folder, size, Detector.OFF, fake_detector=stack, repair=True) as started:
        yield started


def shipped(name: str) -> dict[str, Any]:
    plan: dict[str, Any] = YAML(typ="safe", pure=True).load(find_plan(name).read_text(encoding="utf-8"))
    return plan


def on(plan: dict[str, Any], *nodes: str) -> dict[str, Any]:
    """The plan, aimed at these nodes."""
    return changed(plan, "targets.names", list(nodes))


def hops(played: Played) -> dict[RepairHop, RepairHopSeen]:
    return {seen.hop: seen for seen in played.history.of(RepairHopSeen)}


# Nodes of their own: a node that fails again begins one rung above the repair that did not last.
@pytest.mark.parametrize(
    ("name", "kind", "node"),
    [
        ("hands-off-gpu-fell-off-the-bus", RepairKind.REBOOT, "gpu-node-3"),
        ("hands-off-holdout-swapped-in", RepairKind.GPU_RESET, "gpu-node-5"),
    ],
)
def test_the_cluster_repairs_the_node_by_itself_and_each_hop_has_its_actor(
    repaired: Arena, name: str, kind: RepairKind, node: str
) -> None:
    played = repaired.play(on(shipped(name), node))
    assert played.exit_code == 0, played.output
    found = hops(played)
    assert list(found) == list(RepairHop)
    assert found[RepairHop.REPAIRED].repair is kind
    assert found[RepairHop.QUARANTINED].by == "gameday-health"
    others = {hop: seen.by for hop, seen in found.items() if hop not in (RepairHop.QUARANTINED, RepairHop.READY)}
    assert set(others.values()) == {"gameday-repair"}, others


def test_the_breaker_lets_two_be_repaired_and_the_third_wait_and_all_come_back(repaired: Arena) -> None:
    played = repaired.play(on(shipped("hands-off-breaker-trips"), "gpu-node-1", "gpu-node-6", "gpu-node-7"))
    assert played.exit_code == 0, played.output
    begun = sorted(seen.at for seen in played.history.of(RepairHopSeen) if seen.hop is RepairHop.REPAIR_BEGUN)
    returned = min(seen.at for seen in played.history.of(RepairHopSeen) if seen.hop is RepairHop.RETURNED)
    assert begun[-1] > returned


@pytest.mark.parametrize(
    ("name", "node", "watched"),
    [("hands-off-fails-qa-stays-out", "gpu-node-3", "45s"), ("hands-off-repeat-offender", "gpu-node-2", "10s")],
)
def test_a_node_that_must_stay_out_stays_out(repaired: Arena, name: str, node: str, watched: str) -> None:
    plan = changed(shipped(name), "recover.hops.returned", {"within": watched})
    played = repaired.play(on(plan, node))
    assert played.exit_code == 0, played.output
    assert played.verdicts()["repair-returned"] == "held"
    assert RepairHop.RETURNED not in hops(played)


def test_a_foreign_stack_is_followed_from_its_cordon_to_its_own_validation(foreign: Arena) -> None:
    played = foreign.play(shipped(str(PLANS / "detectors" / "nvsentinel-hands-off-xid-79.yaml")))
    assert played.exit_code == 0, played.output
    found = hops(played)
    assert list(found) == list(RepairHop)
    assert found[RepairHop.REPAIRED].repair is RepairKind.REBOOT
    assert found[RepairHop.VALIDATED].by == "lifecycle-manager"


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """A cluster with our repairer, and the GPU operator as it is shipped today."""
    folder, size = tmp_path_factory.mktemp("operated"), Size(nodes=3, gpus=8, spare=1)
    with arena_in(folder, size, repair=True, gpu_operator=GpuOperator.CDI) as started:
        yield started


def test_the_repairer_resets_a_gpu_although_the_operators_pods_keep_it_open(operated: Arena) -> None:
    before = operated.nodes()
    played = operated.play(shipped("hands-off-double-bit-ecc"))
    assert played.exit_code == 0, played.output
    assert hops(played)[RepairHop.REPAIRED].repair is RepairKind.GPU_RESET
    plugin = [seen.value for seen in played.history.of(LabelSeen) if seen.label.endswith("deploy.device-plugin")]
    assert plugin == [AWAY, "true"]
    labels = {node: labels for node, (_, _, labels, _) in operated.nodes().items()}
    assert labels == {node: labels for node, (_, _, labels, _) in before.items()}
