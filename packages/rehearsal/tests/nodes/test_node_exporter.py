"""node_exporter's interfaces on virtual nodes, as the alert rules read them."""

from __future__ import annotations

from gameday_rehearsal.nodes.node_exporter import render
from gameday_rehearsal.observability import scrape_jobs
from tests.rehearsal.nodes.conftest import Rack


def test_a_link_that_is_down_shows_on_its_node_alone(rack: Rack) -> None:
    rack.machines[0].network.set_link("ib0", up=False)
    text = b"".join(render(rack.machines)).decode()
    assert 'node_network_up{node="a",device="ib0"} 0' in text
    assert 'node_network_up{node="b",device="ib0"} 1' in text
    assert 'node_network_carrier_down_changes_total{node="a",device="ib0"} 1' in text


def test_a_machine_that_is_down_exposes_nothing(rack: Rack) -> None:
    rack.machines[0].powered = False
    text = b"".join(render(rack.machines)).decode()
    assert 'node="a"' not in text
    assert 'node="b"' in text


def test_only_a_small_rehearsal_scrapes_it() -> None:
    jobs = {
        nodes: {job.name: job.path for job in scrape_jobs(nodes, dcgm_address="x:1", health_address="x:2")}
        for nodes in (8, 1000)
    }
    assert jobs[8]["node-exporter"] == "/node-exporter/metrics"
    assert "node-exporter" not in jobs[1000]
