"""Whole game-days of real heat: the shipped plan that heats until the GPU throttles, and a GPU that is hot already."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gameday.history.events import AlertSeen, FaultInjected, FaultUndone
from gameday_rehearsal.blueprint import Size
from gameday_rehearsal.nodes.gpus import MAX_OPERATING_C
from tests.game_days.conftest import QUICK, Arena, arena_in, changed
from tests.game_days.test_shipped_hands_off import shipped
from tests.rehearsal.processes import until

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """A cluster with a node whose last GPU gets too little air."""
    with arena_in(tmp_path_factory.mktemp("warm"), Size(nodes=3, weakly_cooled=True)) as started:
        yield started


def test_a_gpu_that_is_hot_already_is_not_loaded(warm: Arena) -> None:
    """The first GPU of a node computes for a training job, and is hotter than the plan's ceiling."""
    before, host = warm.nodes(), warm.hosts()["gpu-node-1"]
    until(lambda: (host.gpus()[0].temperature_c or 0) > 45, 60, "the job to heat its GPU")
    fault = {"type": "gpu_burn", "gpu": 0, "ceiling_c": 45, "hold": "30s"}
    plan = changed(changed(QUICK, "fault", fault), "expect", {"stays_schedulable_for": "1s"})
    plan = changed(changed(plan, "recover.remediation", "none"), "guardrails.allow_dangerous", ["gpu_burn"])
    played = warm.play(changed(plan, "targets.names", ["gpu-node-1"]))
    assert played.exit_code == 2, played.output
    assert "°C, and ceiling_c is 45" in " ".join(played.output.split())
    assert not list(played.history.of(FaultInjected))
    assert (warm.leftovers(), warm.nodes()) == ([], before)


def is_last_gpu_idle(arena: Arena) -> bool:
    """Where training took all of the node's GPUs, its pods go once they all run, and start anew where there is room.

    A job that goes on after the game-day's load would keep the weakly cooled GPU too hot for QA.
    """
    pods = arena.core.list_namespaced_pod("training").items
    pods = [pod for pod in pods if pod.status.phase not in ("Failed", "Succeeded")]
    if any(pod.status.phase != "Running" or pod.metadata.deletion_timestamp for pod in pods):
        return False
    if arena.hosts()["gpu-node-1"].gpus()[7].utilization_pct == 0:
        return True
    for pod in pods:
        if pod.spec.node_name == "gpu-node-1":
            arena.core.delete_namespaced_pod(pod.metadata.name, "training")
    return False


def test_the_shipped_plan_heats_until_the_gpu_throttles_and_somebody_is_told(warm: Arena) -> None:
    """The plan but for its alert's end, which comes some minutes later and would be waited for."""
    until(lambda: is_last_gpu_idle(warm), 120, "GPU 7 of gpu-node-1 without training")
    before, plan = warm.nodes(), changed(shipped("gpu-heat-throttles"), "expect.alerts", [])
    played = warm.play(changed(plan, "expect.stays_schedulable_for", "130s"))
    assert played.exit_code == 0, played.output
    evidence = " ".join(line for undone in played.history.of(FaultUndone) for line in undone.evidence)
    found = re.search(r"throttled after \d+ s at ([\d.]+) °C", evidence)
    peak = re.search(r"held: peak ([\d.]+) °C", evidence)
    assert found and peak, evidence
    assert MAX_OPERATING_C <= float(found[1]) <= float(peak[1]) < 91, "it throttles, and does not come to its ceiling"
    fired = {seen.labels["gpu"] for seen in played.history.of(AlertSeen) if seen.alert == "GPUThermalThrottling"}
    assert fired == {"7"}, "the heated GPU alone"
    assert (warm.leftovers(), warm.nodes()) == ([], before)
