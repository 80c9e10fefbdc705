"""A run notes which of its targets are virtual, by the nodes themselves: its profile may say nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.history.events import RunStarted, TargetsChosen
from gameday.values.nodes import VIRTUAL_PROVIDER
from tests.support.scripted.api_server import ADMINISTRATOR
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.game_day import play
from tests.support.scripted.script import Script


def make_virtual(cluster: ScriptedCluster, *nodes: str) -> None:
    for node in nodes:
        path = f"/api/v1/nodes/{node}"
        cluster.server.administrator("PATCH", path, {"spec": {"providerID": f"{VIRTUAL_PROVIDER}x/{node}"}})
        info = {"status": {"nodeInfo": {"containerRuntimeVersion": f"{VIRTUAL_PROVIDER}1.0.0"}}}
        cluster.server.administrator("PATCH", f"{path}/status", info)


@pytest.mark.parametrize("virtual", [(), ("gpu-node-1", "gpu-node-2")], ids=["real", "virtual"])
def test_the_targets_say_what_they_are(reports: Path, virtual: tuple[str, ...]) -> None:
    played = play(prepare=lambda cluster: make_virtual(cluster, *virtual), reports=reports)
    started, chosen = played.history.first(RunStarted), played.history.last(TargetsChosen)
    assert started and chosen
    assert (started.trigger, started.virtual) == ("manual", False)
    assert chosen.virtual == tuple(target.node for target in chosen.targets if target.node in virtual)
    assert bool(chosen.virtual) is bool(virtual)


def test_candidates_are_known_by_their_container_runtime() -> None:
    cluster = ScriptedCluster(Script())
    make_virtual(cluster, "gpu-node-2")
    found = cluster.kubernetes(ADMINISTRATOR).all_candidates({})
    assert {one.name: one.virtual for one in found} == {"gpu-node-1": False, "gpu-node-2": True}
