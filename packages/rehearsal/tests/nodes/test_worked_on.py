"""The page of the nodes that game-days work on, by which a large rehearsal's Prometheus need not read all nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from gameday.cluster.manifests import RUN_LABEL
from gameday_rehearsal.nodes import server
from gameday_rehearsal.nodes.logship import LogShipper
from gameday_rehearsal.nodes.virtual_nodes import Settings, VirtualNodes
from gameday_rehearsal.scrape_pace import WORKED_ON, WORKED_ON_TARGETS


class SeenPods:
    """A kubelet that takes what its watch shows."""

    def pod_seen(self, _: Any) -> None:
        return


def nodes_of(tmp_path: Path, count: int) -> VirtualNodes:
    settings = Settings(nodes=count, gpus=2, prefix="n", boot_s=0.1, state_dir=tmp_path)
    nodes = VirtualNodes(settings, LogShipper(None))
    nodes.kubelets = {name: SeenPods() for name in settings.names}  # type: ignore[misc]
    return nodes


def show(nodes: VirtualNodes, node: str, labels: dict[str, str]) -> None:
    nodes._seen({"metadata": {"name": "p", "labels": labels}, "spec": {"nodeName": node}})


async def test_only_nodes_with_a_game_days_pod_are_on_the_page(tmp_path: Path) -> None:
    nodes = nodes_of(tmp_path, 3)
    async with TestClient(TestServer(server.application(nodes))) as client:
        assert await (await client.get(WORKED_ON)).text() == ""
        show(nodes, "n-1", {"app": "pretrain"})
        show(nodes, "n-2", {RUN_LABEL: "20261126-090000-7f3a1c"})
        page = await (await client.get(WORKED_ON, params={"name": "DCGM_FI_DEV_GPU_TEMP"})).text()
    series = [line for line in page.splitlines() if not line.startswith("#")]
    assert len(series) == 2
    assert all(line.startswith("DCGM_FI_DEV_GPU_TEMP{") and 'Hostname="n-2"' in line for line in series)


async def test_prometheus_is_told_to_read_many_nodes_less_often(tmp_path: Path) -> None:
    nodes = nodes_of(tmp_path, 600)
    async with TestClient(TestServer(server.application(nodes))) as client:
        address = client.make_url("/").authority
        paces = []
        for count in (0, 1, 600):
            for number in range(1, count + 1):
                show(nodes, f"n-{number}", {RUN_LABEL: "r"})
            (target,) = await (await client.get(WORKED_ON_TARGETS)).json()
            paces.append(target["labels"]["__scrape_interval__"])
    assert target["targets"] == [address]
    assert target["labels"]["job"] == "dcgm-exporter", "the same series as those of all nodes"
    assert paces == ["1s", "1s", "10s"]
